/* thread.h - how a thread comes to count, and ends; what a fork and the process's end mean for it.
 *
 * A thread begins with its first operation, or when pthread_create of ours made it. It ends with the last round of its
 * destructors: what it frees after that is counted in the file as late, and its kernel calls are not seen any more.
 */
#ifndef CAIRN_PROBE_THREAD_H
#define CAIRN_PROBE_THREAD_H

#include "probe/self.h"

/* An operation begins and the guard is not SELF_OUTSIDE: begins the thread, or notices that an operation was left by
 * ways of which nobody told. False: the operation is not counted (or is counted here), and the guard is as it was. */
bool thread_enter_slowly(struct self *me, uintptr_t frame, enum profile_function function,
                         size_t bytes);

/* What the thread is in, if anything, is left by a jump or an exception. */
void thread_leaves(void);

/* No operation is under way; draws which one is the next to be timed, and how. */
void thread_is_idle(struct self *me);

/* The thread was made by pthread_create, which has told session.h. */
void thread_begin_announced(void);

/* What the thread was to run has returned; its destructors come. */
void thread_ends(void);

/* The process ends, by that code. */
void thread_end_process(int exit_code);

/* Was there a fork that nobody told us of (a clone by system call)? Then the thread begins anew. */
bool thread_was_forked(struct self *me);

#endif
