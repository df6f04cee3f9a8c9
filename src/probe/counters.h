/* counters.h - what the processor counts in an operation: cycles, instructions, misses, where it lets itself be asked.
 *
 * By choice alone (CAIRN_PROBE_COUNTERS, names with commas between them), since each thread then holds descriptors: one
 * group of perf events (perf_event_open(2)) that count its user mode, read by a call of the kernel before the operation
 * and one behind it. What these take themselves is measured when the process begins, and told in the file.
 *
 *     me->counter_slots    the slots of profile_head.events that the thread's group counts; 0: it has none
 *
 * A program may close what it does not know, and the number may become a file of its own: before a group is read it is
 * asked by an ioctl that only such an event answers.
 */
#ifndef CAIRN_PROBE_COUNTERS_H
#define CAIRN_PROBE_COUNTERS_H

#include "probe/self.h"

/* Says in the file what is wanted. Once for each file. */
void counters_begin(void);

/* For the calling thread. */
void counters_arm(struct self *me);
void counters_disarm(struct self *me);

/* Around an operation of a thread that has a group: me->events is what was counted meanwhile. False: nothing is known of it,
 * since the group is gone or did not count all the time (the processor has fewer counters than are asked for). */
bool counters_before(struct self *me);
bool counters_after(struct self *me);

#endif
