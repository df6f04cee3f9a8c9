/* cpu_timer.h - samples where a thread spends its CPU time: in the allocator, in the probe, or
 * elsewhere.
 *
 * This is a second estimate of the allocator's share of CPU time, independent of the timed
 * operations. Each thread has a kernel timer that runs with its CPU time (timer_create(2)). The
 * kernel checks such timers only at the ticks of the scheduler. So each tick at which the thread
 * runs gives one clock sample. The timer's signal is SIGSYS, which belongs to the probe if system
 * calls are dispatched (kernel_calls.h). Without dispatch there are no samples. The signal never
 * interrupts a system call in which the program waits, because the kernel sends it when the thread
 * is about to return to user mode (Linux 5.9, x86-64).
 */
#ifndef CAIRN_PROBE_CPU_TIMER_H
#define CAIRN_PROBE_CPU_TIMER_H

#include "probe/thread_state.h"

/* cpu_timer_arm() creates the calling thread's timer, and cpu_timer_disarm() deletes it. SIGSYS
 * must belong to the probe. The kernel keeps a timer until the process ends, so each thread must
 * delete its own timer at its end. If the kernel refuses a timer, the file records the refusal in
 * timer_errno and timers_refused. */
void cpu_timer_arm(struct thread_state *me);
void cpu_timer_disarm(struct thread_state *me);

/* Deletes the timer even if direct_forbidden is true. The caller knows that the system call is
 * permitted. */
void cpu_timer_disarm_permitted(struct thread_state *me);

/* Counts one clock sample. The handler of SIGSYS calls this for each signal of the thread's timer.
 * `instruction` and `stack` are the instruction pointer and the stack pointer of the thread at the
 * signal. */
void cpu_timer_told(struct thread_state *me, uintptr_t instruction, uintptr_t stack);

/* The signals of all timers carry the address of this variable as their value. */
extern char cpu_timer_mark __attribute__((visibility("hidden")));

#endif
