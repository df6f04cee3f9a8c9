/* purge.h - when memory that nobody uses goes back to the machine.
 *
 * What was idle (free and resident) during a whole epoch of a quarter of a second, nobody needed: it is given back, but
 * for a slack of 1 MiB or a thirty-second of what is in use. So a program that shrinks does not keep what it had, and
 * one that swings faster than that makes no system call for it. There is no thread and no timer, but where background.h is
 * asked for: whoever frees a run looks at the clock, and now and then who needs more small blocks.
 *
 * Else nobody looks while a program sleeps. So what is idle beyond what is used and 128 MiB goes at once, down to half of that; but
 * where most of what went so was needed again before the next time, as in a program that fills and empties its memory in
 * turns, as much is kept as there is, and 128 MiB more, beyond what is used; less again by what an epoch shows that nobody
 * needs. Each such purge is judged by the next alone.
 */
#ifndef CAIRN_ALLOC_PURGE_H
#define CAIRN_ALLOC_PURGE_H

#include "alloc/page_heap.h"

/* Frees a run, and gives back what is idle beyond the measure. Takes the page heap's lock. */
void purge_free(size_t index, size_t slices);

/* Gives back what nobody needed, if an epoch is over. Takes the page heap's lock; the caller does not hold it. */
void purge_look(void);

/* For background.h: there is a thread that looks; a quarter of the slack will do. Before the program has a second thread. */
void purge_is_watched(void);

/* For background.h: sleeps while no more is idle than the slack, at most so long. True: something was freed meanwhile. */
bool purge_rest(unsigned ms);

/* For background.h: the last time that anything was to go, the machine took nothing, as of what is locked. */
bool purge_is_refused(void);

/* So much idle memory is kept beyond as much as is used, as far as has been learnt (learning.h). */
size_t purge_held_bytes(void);

#endif
