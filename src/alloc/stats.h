/* stats.h - what is handed out and what is held, counted when somebody asks: the fast paths count nothing.
 *
 * All slabs are walked under the locks of all heaps, so that none goes back to the page heap meanwhile. What a thread
 * changes without a lock is read as it is just then: sums over threads that allocate are of slightly different moments.
 */
#ifndef CAIRN_ALLOC_STATS_H
#define CAIRN_ALLOC_STATS_H

#include <cairn/cairn.h>

void stats_gather(struct cairn_stats *stats);

#endif
