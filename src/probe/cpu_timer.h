/* cpu_timer.h - where a thread spends its CPU time, sampled: in the allocator, in the probe, or elsewhere.
 *
 * A second estimate of the allocator's share, which owes nothing to the timed operations. Each thread has a timer of the
 * kernel's that runs with its CPU time (timer_create(2)) and is looked at, as all of these are, at the scheduler's
 * ticks: so one sample is one tick that met the thread, at whatever point it was. The timer's signal is SIGSYS, whose
 * handler is ours already where kernel calls are dispatched (kernel_calls.h); elsewhere nothing is sampled. No wait of the program is cut short:
 * Linux sends the signals of such timers when the thread is about to return to its own code (5.9, x86-64).
 */
#ifndef CAIRN_PROBE_CPU_TIMER_H
#define CAIRN_PROBE_CPU_TIMER_H

#include "probe/self.h"

/* For the calling thread, once SIGSYS is ours; the timer ends with the process, so a thread that ends drops it. */
void cpu_timer_arm(struct self *me);
void cpu_timer_disarm(struct self *me);

/* The timer of the calling thread told; the addresses are those of the instruction and of the stack where it was. */
void cpu_timer_told(struct self *me, uintptr_t instruction, uintptr_t stack);

/* A signal's value by which it is known to be a timer's of ours. */
extern char cpu_timer_mark __attribute__((visibility("hidden")));

#endif
