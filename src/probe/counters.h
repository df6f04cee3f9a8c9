/* counters.h - counts cycles, instructions and misses within an operation, if the processor's
 * counters are available.
 *
 * It is off unless CAIRN_PROBE_COUNTERS names events, separated by commas, since each thread then
 * holds descriptors: one group of perf events (perf_event_open(2)) that count its user mode. A
 * group is read by one system call before the operation and one after it. The first thread measures
 * what an empty operation counts, and stores that in the file for the reader to subtract. thread.c
 * and account.c call these functions, for the calling thread only.
 *
 *     bit s of me->counter_slots  ==  the thread's group counts profile_head.events[s]; 0: no group
 *
 * A program may close descriptors that it does not know, and may then get the same number for a
 * file of its own. So before a group is read, an ioctl checks that the descriptor still is an
 * event.
 */
#ifndef CAIRN_PROBE_COUNTERS_H
#define CAIRN_PROBE_COUNTERS_H

#include "probe/self.h"

/* Writes the wanted events into the file. Called once for each file. */
void counters_begin(void);

/* Opens and closes the thread's group. An event that cannot be opened is left out, and its errno is
 * in the file. */
void counters_arm(struct self *me);
void counters_disarm(struct self *me);

/* Called before and after an operation of a thread that has a group. After both, me->events holds
 * what was counted in between. Returns false if that is not known: the group is gone, or it did not
 * count all the time because the processor has fewer counters than the group needs. */
bool counters_before(struct self *me);
bool counters_after(struct self *me);

#endif
