/* kernel_calls.h - counts and times every system call that the allocator makes.
 *
 * The probe uses syscall user dispatch (Linux 5.11, x86-64). A thread that has turned on dispatch
 * for itself is called armed. At each system call of an armed thread the kernel reads
 * thread_state.guard. If the guard is THREAD_INSIDE, the kernel raises SIGSYS instead of making the
 * call, and the probe's handler makes the call for the thread: the call is dispatched. So the probe
 * also sees the calls that libc makes internally, which do not pass through interposed functions.
 * Children of fork, vfork and clone do not inherit dispatch, so every thread arms itself. If the
 * program turns on dispatch of its own for a thread, as Wine does, the probe gives that thread's
 * dispatch up (thread_state.yielded), and passes the thread's signals on to the program.
 *
 * If the kernel refuses dispatch, the probe sees only calls through libc's memory functions
 * (interpose_nonallocating.c).
 */
#ifndef CAIRN_PROBE_KERNEL_CALLS_H
#define CAIRN_PROBE_KERNEL_CALLS_H

#include "probe/session.h"
#include "probe/thread_state.h"

/* The option of prctl(2) that turns dispatch on and off: PR_SET_SYSCALL_USER_DISPATCH. Headers of
 * Linux before 5.11 do not have it. */
enum { KERNEL_CALLS_DISPATCH = 59 };

/* Chooses how system calls are seen (enum profile_dispatch), and writes the choice into the file.
 * CAIRN_PROBE_KERNEL=off and CAIRN_PROBE_KERNEL=interpose make the choice. Without them dispatch is
 * tried first. Called once for each file, before any thread arms itself. */
void kernel_calls_begin(struct thread_state *me);

/* kernel_calls_arm() arms the calling thread, and kernel_calls_disarm() disarms it. While a thread
 * is armed, its guard must be THREAD_INSIDE or THREAD_OUTSIDE. kernel_calls_disarm() returns false
 * if a sandbox refuses the system call that disarms. The thread then stays armed. */
void kernel_calls_arm(struct thread_state *me);
bool kernel_calls_disarm(struct thread_state *me);

/* The same as kernel_calls_disarm(), even if direct_forbidden is true. The caller knows that the
 * system call is permitted. */
bool kernel_calls_disarm_permitted(struct thread_state *me);

/* Unblocks SIGSYS for an armed thread. Go's runtime, for example, blocks SIGSYS by a system call of
 * its own before a thread ends. The next dispatched call would then kill the process. */
void kernel_calls_unblock(const struct thread_state *me);

/* Some functions of libc block every signal by an internal call and then allocate. A dispatched
 * call would kill the process meanwhile. So kernel_calls_pause() disarms the thread before such a
 * function, and kernel_calls_resume() arms it again. kernel_calls_pause() returns true if
 * kernel_calls_resume() has to be called. */
bool kernel_calls_pause(struct thread_state *me);
void kernel_calls_resume(struct thread_state *me);

/* Counts one system call of the allocator, and records the memory that the call maps and unmaps.
 * `result` is -errno if the call failed. `cpu_ns` has the meaning of the field in struct
 * profile_call_counts. */
void kernel_calls_note(long number, const long arguments[3], long result, uint64_t ticks,
                       uint64_t cpu_ns);

/* Returns the time in ticks that dispatching one system call takes, without the call itself.
 * Returns 0 if dispatch was never used. */
uint64_t kernel_calls_cost_ticks(void);

/* Returns true if this thread is in the allocator, and dispatch is off, so that the probe counts
 * system calls in its interposed versions of libc's functions (interpose_nonallocating.c). */
bool kernel_calls_interposed(void);

/* Stores `*wanted` as the program's own action for SIGSYS, as sigaction() would set it, and returns
 * the former action in `*before`. Both pointers may be NULL. The probe's handler carries out this
 * action for a SIGSYS that the program caused itself. */
struct sigaction;
void kernel_calls_their_action(const struct sigaction *wanted, struct sigaction *before);

/* Notes in the file that the calls of a thread are not seen, because the program itself dispatches
 * them. */
void kernel_calls_yielded(void);

/* Returns true if system calls are dispatched, so that SIGSYS belongs to the probe. */
bool kernel_calls_owns_signal(void);

/* The value of a SIGSYS with which Cairn asks the process for something (sigqueue()). */
enum { KERNEL_CALLS_REQUEST = 0x6d697274 };

/* From now on, a thread that gets such a signal calls `serve` in its handler, with the registers of
 * the instruction that the signal interrupted. Called before main. Without this call, the signal is
 * one of the program's own. */
void kernel_calls_serve(void (*serve)(const struct unwind_start *interrupted));

/* kernel_calls_expect() is called before main if the probe is on. From then on
 * kernel_calls_may_own_signal() returns true if SIGSYS belongs to the probe already, or may belong
 * to it after the program's first allocation. */
void kernel_calls_expect(void);
bool kernel_calls_may_own_signal(void);

#endif
