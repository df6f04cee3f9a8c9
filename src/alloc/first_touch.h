/* first_touch.h - what it costs here to touch memory for the first time, and whether huge pages are worth it.
 *
 * A huge page spares 511 faults; but where a host gives its guests memory on demand it may have to find 2 MiB first: measured
 * 0.24 ms when it had them and 3 to 17 when it had not, against 0.5 to 1.5 ms for 512 small pages, which the kernel takes from
 * those that were used last. So first touches are timed, and when a huge page was slow nobody asks for some chunks, twice as many
 * each time. No lock: a lost value is one of many.
 */
#ifndef CAIRN_ALLOC_FIRST_TOUCH_H
#define CAIRN_ALLOC_FIRST_TOUCH_H

#include "base/base.h"

enum first_touch_wanted { FIRST_TOUCH_SMALL, FIRST_TOUCH_HUGE, FIRST_TOUCH_AUTO };

/* Never huge pages, always, or while they come quickly, as at first. What was slow may be quick by now: that begins anew. */
void first_touch_want(enum first_touch_wanted wanted);
enum first_touch_wanted first_touch_wanted(void);

/* Whether a chunk that would rather be a huge page may ask to be one; counts it as one of those that wait. */
bool first_touch_may_be_huge(void);

/* Touches what nobody has, and learns from how long that took: a chunk that asked for a huge page; the first two OS pages of one that
 * did not. */
void first_touch_huge(char *chunk);
void first_touch_small(char *chunk);

#endif
