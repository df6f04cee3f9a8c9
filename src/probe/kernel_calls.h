/* kernel_calls.h - every call of the kernel that the allocator makes, counted and timed.
 *
 * Syscall user dispatch (Linux 5.11, x86-64): the kernel reads self.guard at each system call of an armed thread; while
 * it says inside, the call becomes a SIGSYS, whose handler makes it in the thread's place. So libc's own calls are seen
 * too, which go through no symbol. Not inherited by fork, vfork and clone: every thread arms itself.
 *
 * Where that is not to be had, calls are seen that go through libc's functions (interpose.c), and no others.
 */
#ifndef CAIRN_PROBE_KERNEL_CALLS_H
#define CAIRN_PROBE_KERNEL_CALLS_H

#include "probe/self.h"
#include "probe/session.h"

/* Chooses the way, by CAIRN_PROBE_KERNEL (auto, dispatch, interpose, off), and says in the file which. Once for each
 * file, before a thread arms. */
void kernel_calls_begin(struct self *me);

/* For the calling thread, whose guard is SELF_INSIDE or SELF_OUTSIDE as long as it is armed. Disarming is false where a sandbox
 * refuses. */
void kernel_calls_arm(struct self *me);
bool kernel_calls_disarm(struct self *me);

/* Lets the signal through by which calls come, once more: a thread that blocked it by a system call of its own (Go's
 * runtime does before a thread ends) would be killed by the next. */
void kernel_calls_unblock(const struct self *me);

/* Notes one call with its arguments; `result` is -errno when it failed; `cpu_ns`: see struct profile_call_counts. */
void kernel_calls_note(long number, const long arguments[3], long result, uint64_t ticks,
                       uint64_t cpu_ns);

/* What a dispatched call costs beyond the call itself; 0 where none is dispatched. */
uint64_t kernel_calls_cost_ticks(void);

/* Are those noted that go through libc's functions, and is this thread inside? */
bool kernel_calls_interposed(void);

/* The program's own wishes for SIGSYS, which are kept and carried out where the signal is not ours. */
struct sigaction;
void kernel_calls_their_action(const struct sigaction *wanted, struct sigaction *before);
bool kernel_calls_owns_signal(void);

/* Before main, where the probe is wanted: does the signal belong to us, or may it as soon as the program allocates? */
void kernel_calls_expect(void);
bool kernel_calls_may_own_signal(void);

#endif
