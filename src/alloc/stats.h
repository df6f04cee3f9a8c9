/* stats.h - counts what is handed out and what is held, when it is requested. The fast paths count
 * nothing.
 *
 * All slabs are walked under the locks of all heaps, so that no slab goes back to the page heap
 * meanwhile. Values that a thread changes without a lock are read as they are at that moment. Sums
 * over threads that allocate meanwhile therefore mix slightly different moments.
 */
#ifndef CAIRN_ALLOC_STATS_H
#define CAIRN_ALLOC_STATS_H

#include <cairn/cairn.h>

/* Fills `*stats`. Takes and drops the locks of all heaps, and then that of the page heap. */
void stats_gather(struct cairn_stats *stats);

#endif
