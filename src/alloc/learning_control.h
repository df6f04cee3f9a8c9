/* learning_control.h - turns learning off, and traces and counts what the allocator learns.
 *
 * Two values are always learnt: how much idle memory is kept beyond the memory in use (purge.h),
 * and for how many chunks no huge page is requested after one was slow (huge_page_timing.h). With
 * CAIRN_POLICY=ucb1 a third one is learnt: how much each thread keeps (run_cache_learning.h). They
 * begin with values that are right for most programs. While learning is frozen, none changes.
 *
 * Any thread may call these functions, and may hold locks. The trace therefore writes to stderr
 * while locks are held. A program that reads its own stderr must not be traced: the thread that
 * writes may wait for the thread that reads, which may wait for one of these locks.
 */
#ifndef CAIRN_ALLOC_LEARNING_CONTROL_H
#define CAIRN_ALLOC_LEARNING_CONTROL_H

#include "base/base.h"

/* From now on, nothing is learnt. */
void learning_freeze(void);
bool learning_is_frozen(void);

/* From now on, each change writes one line to stderr. */
void learning_trace(void);

/* Records that the value named `what` changed from `before` to `now`. Equal values are no
 * change. */
void learning_changed(const char *what, uint64_t before, uint64_t now);

/* Returns the number of changes, ever. */
uint64_t learning_changes(void);

#endif
