/* perf_events.h - counts cycles, instructions and misses within an operation, if the processor's
 * counters are available.
 *
 * Counting is on if CAIRN_PROBE_COUNTERS names events, separated by commas. It is off by default,
 * because each thread needs a descriptor for each event. The events of a thread form one group of
 * perf events (perf_event_open(2)) and are counted in user mode. One system call reads the group
 * before the operation, and another one after it. The first operation counts the events of an empty
 * operation and stores them in the file, so that the reader can subtract them. Until that succeeds,
 * no operation is counted. thread.c and account.c call these functions. Each call is for the
 * calling thread only.
 *
 *     profile_times.event_operations != 0  =>  profile_head.has_event_nothing == 1
 *     bit s of me->counter_slots  ==  the thread's group counts profile_head.events[s]
 *
 * A program may close descriptors that it does not know, and may then get the same number for a
 * file of its own. So before a group is read, an ioctl checks that the descriptor still is an
 * event.
 */
#ifndef CAIRN_PROBE_PERF_EVENTS_H
#define CAIRN_PROBE_PERF_EVENTS_H

#include "probe/thread_state.h"

/* Writes the wanted events into the file. Called once for each file. */
void perf_events_begin(void);

/* perf_events_arm() opens the thread's group, and perf_events_disarm() closes it. If an event
 * cannot be opened, the group does not contain it, and profile_head.event_errnos has the reason. If
 * there is no descriptor for an event (EMFILE), the thread has no group. */
void perf_events_arm(struct thread_state *me);
void perf_events_disarm(struct thread_state *me);

/* Called in the child of a fork. Closes the descriptors of all threads of its parent. Those with a
 * number above 66,235 stay open. */
void perf_events_forked(void);

/* Called before and after an operation of a thread that has a group. After perf_events_after(),
 * me->events holds the events between the two calls. The functions return false if these numbers
 * are not known. There are two reasons: the group cannot be read, or it did not count all the time
 * because the processor has fewer counters than its groups need. */
bool perf_events_before(struct thread_state *me);
bool perf_events_after(struct thread_state *me);

#endif
