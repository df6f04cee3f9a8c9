/* thread.h - begins and ends a thread in the probe, and handles fork and the end of the process.
 *
 * A thread begins with its first operation, or before its first instruction if our pthread_create()
 * made it. It ends in the last round of its destructors: what it frees later is counted in the file
 * as late, and its system calls are not seen any more. The functions are called by the thread that
 * they are about.
 */
#ifndef CAIRN_PROBE_THREAD_H
#define CAIRN_PROBE_THREAD_H

#include "probe/self.h"

/* Called at the beginning of an operation if the guard is not SELF_OUTSIDE. It begins a new thread.
 * It also notices that the thread left its last operation in a way that bypassed the probe, such as
 * a jump. `frame` is the stack pointer in our function. Returns false if the operation must not be
 * counted: the allocator itself called our function, the probe is off, or the thread has ended. In
 * the last case the operation is counted here, as late. */
bool thread_enter_slowly(struct self *me, uintptr_t frame, enum profile_function function,
                         size_t bytes);

/* Called before a longjmp or a throw: ends the operation that the thread is in, if there is one. */
void thread_leaves(void);

/* Called when an operation is over: draws when the next operation is timed, and what is measured in
 * it. */
void thread_is_idle(struct self *me);

/* Begins a thread that pthread_create() made and that session_thread_comes() has counted. */
void thread_begin_announced(void);

/* Called when the thread's start function has returned; its destructors follow. */
void thread_ends(void);

/* Called when the process ends: closes the file with this exit code. */
void thread_end_process(int exit_code);

/* Returns true if this process is a child that was forked without our handler, by a clone system
 * call. Then it also leaves the parent's file, and the thread begins anew at its next operation. */
bool thread_was_forked(struct self *me);

#endif
