/* kernel_calls.h - counts and times every system call that the allocator makes.
 *
 * It uses syscall user dispatch (Linux 5.11, x86-64). At each system call of an armed thread the
 * kernel reads self.guard. If it is SELF_INSIDE, the kernel raises SIGSYS instead, and the probe's
 * handler makes the call for the thread. So the calls that libc makes internally, which no
 * interposed function meets, are seen too. Children of fork, vfork and clone do not inherit
 * dispatch: every thread arms itself.
 *
 * If dispatch is refused, only calls through libc's memory functions are seen (process.c).
 */
#ifndef CAIRN_PROBE_KERNEL_CALLS_H
#define CAIRN_PROBE_KERNEL_CALLS_H

#include "probe/self.h"
#include "probe/session.h"

/* Chooses how system calls are seen, and writes that into the file. CAIRN_PROBE_KERNEL=off or
 * =interpose is taken as it is; otherwise dispatch is tried first. Called once for each file,
 * before any thread arms. */
void kernel_calls_begin(struct self *me);

/* Arms and disarms the calling thread. While it is armed, its guard must be SELF_INSIDE or
 * SELF_OUTSIDE. kernel_calls_disarm() returns false if a sandbox refuses the call: the thread then
 * stays armed. */
void kernel_calls_arm(struct self *me);
bool kernel_calls_disarm(struct self *me);

/* Unblocks SIGSYS once more. A thread that blocked it by a system call of its own, as Go's runtime
 * does before a thread ends, would be killed by its next dispatched call. */
void kernel_calls_unblock(const struct self *me);

/* Counts one system call of the allocator, and follows what it maps and unmaps. `result` is -errno
 * if it failed; `cpu_ns` is as in struct profile_call_counts. */
void kernel_calls_note(long number, const long arguments[3], long result, uint64_t ticks,
                       uint64_t cpu_ns);

/* Returns what a dispatched call costs in addition to the call itself, 0 if dispatch was never
 * used. */
uint64_t kernel_calls_cost_ticks(void);

/* Returns true if this thread is inside, and calls through libc's functions are to be noted. */
bool kernel_calls_interposed(void);

/* Keeps the program's own action for SIGSYS, as sigaction() would set it, and returns the former
 * one in `*before`. Both pointers may be NULL. The action is carried out for a SIGSYS that is not
 * the probe's. */
struct sigaction;
void kernel_calls_their_action(const struct sigaction *wanted, struct sigaction *before);

/* Returns true if SIGSYS belongs to the probe, since system calls are dispatched. */
bool kernel_calls_owns_signal(void);

/* Called before main if the probe is on. From then on kernel_calls_may_own_signal() returns true if
 * SIGSYS belongs to the probe, or may do so from the program's first allocation on. */
void kernel_calls_expect(void);
bool kernel_calls_may_own_signal(void);

#endif
