/* thread.h - begins and ends a thread in the probe, and handles fork and the end of the process.
 *
 * A thread begins with its first operation, or before its first instruction if our pthread_create()
 * made it. It ends in the last round of its destructors. After that, its operations are counted as
 * late (profile_head.late_calls), and its system calls are not seen. A thread calls these functions
 * for itself only.
 */
#ifndef CAIRN_PROBE_THREAD_H
#define CAIRN_PROBE_THREAD_H

#include "probe/thread_state.h"

/* Called at the beginning of an operation if the guard is not THREAD_OUTSIDE. If the thread is new,
 * the function begins it. The function also notices if the thread left its last operation without
 * passing the probe, for example by a jump. `frame` is the stack pointer in the interposed
 * function. `given` is the number of bytes requested, or the address of the block to free. Returns
 * false if the operation must not be counted. There are three reasons: the allocator itself called
 * the interposed function, the probe is off, or the thread has ended. In the last case this
 * function counts the operation as late. */
bool thread_enter_slowly(struct thread_state *me, uintptr_t frame, enum profile_function function,
                         uintptr_t given);

/* Called before a longjmp or a throw: ends the operation that the thread is in, if there is one. */
void thread_leaves(void);

/* Called before memory for an exception is allocated. If the thread is in an operation, that
 * operation is about to throw the exception, so it ends here. An operator new counts as failed. The
 * allocation of the exception's memory then counts as an operation of its own, as does its free
 * later. `frame` is the stack pointer in the interposed function. */
void thread_throws(uintptr_t frame);

/* Called when an operation is over. Decides at random which operation is timed next, and what is
 * measured in it. */
void thread_is_idle(struct thread_state *me);

/* Begins a thread that pthread_create() made and that session_thread_comes() has counted. */
void thread_begin_announced(void);

/* Begins the calling thread in the probe, if it has not begun yet. Called when the thread is about
 * to forbid itself system calls, because a thread needs system calls to begin. */
void thread_begin_early(void);

/* thread_suspend() is called when the thread is about to enter seccomp's strict mode, in which a
 * reading of the clock kills it. From then on, its operations are counted as late. If the kernel
 * refuses strict mode, thread_resume() undoes this. It needs the pointer that thread_suspend()
 * returned. The pointer is NULL if the thread was not suspended. */
struct profile_thread *thread_suspend(void);
void thread_resume(struct profile_thread *counts);

/* Called when the thread's start function has returned, before its destructors run. */
void thread_ends(void);

/* Called when the process ends. Completes the file and writes the exit code into it. */
void thread_end_process(int exit_code);

/* Returns true if this process is a child that a clone system call made, so that our fork handler
 * did not run. In that case the function also detaches the child from the parent's file. The thread
 * begins anew at its next operation. */
bool thread_was_forked(struct thread_state *me);

#endif
