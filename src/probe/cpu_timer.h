/* cpu_timer.h - samples where a thread spends its CPU time: in the allocator, in the probe, or
 * elsewhere.
 *
 * This is a second estimate of the allocator's share of CPU time, independent of the timed
 * operations. Each thread has a kernel timer that runs with its CPU time (timer_create(2)). The
 * kernel looks at such timers at the scheduler's ticks only, so each tick that finds the thread
 * running gives one clock sample. The timer's signal is SIGSYS, which belongs to the probe if
 * system calls are dispatched (kernel_calls.h); without dispatch there are no samples. The signal
 * cuts no wait of the program short: Linux sends it when the thread is about to return to its own
 * code (5.9, x86-64).
 */
#ifndef CAIRN_PROBE_CPU_TIMER_H
#define CAIRN_PROBE_CPU_TIMER_H

#include "probe/self.h"

/* Creates and deletes the calling thread's timer, while SIGSYS belongs to the probe. A timer lives
 * as long as the process, so each thread must delete its own at its end. If the kernel refuses a
 * timer, the file says so (timer_errno, timers_refused). */
void cpu_timer_arm(struct self *me);
void cpu_timer_disarm(struct self *me);

/* Called by the handler of SIGSYS for a signal of the thread's timer: counts one clock sample.
 * `instruction` and `stack` are where the signal found the thread. */
void cpu_timer_told(struct self *me, uintptr_t instruction, uintptr_t stack);

/* Its address is the value that the timers' signals carry. */
extern char cpu_timer_mark __attribute__((visibility("hidden")));

#endif
