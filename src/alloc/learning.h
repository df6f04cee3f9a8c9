/* learning.h - what the allocator has learnt of the program that it serves, and whether it may learn.
 *
 * Two things are learnt: how much idle memory is kept beyond what is used (purge.h), and for how long nobody asks for huge
 * pages because they were slow to come (first_touch.h). Both begin with what is right for most. Frozen, they stay so.
 *
 * Any thread may call any of this. A line is written where a change is found, with whatever locks are held there: a trace is for looking at
 * a program, and not for one that reads its own stderr.
 */
#ifndef CAIRN_ALLOC_LEARNING_H
#define CAIRN_ALLOC_LEARNING_H

#include "base/base.h"

/* From now on nothing is learnt. */
void learning_freeze(void);
bool learning_is_frozen(void);

/* From now on each change is a line on stderr. */
void learning_trace(void);

/* `what` was `before` and is `now`; the same value is no change. */
void learning_changed(const char *what, uint64_t before, uint64_t now);

/* Changes, ever. */
uint64_t learning_changes(void);

#endif
