/* stats.h - computes the statistics of cairn.h when they are requested. The fast paths count
 * nothing.
 *
 * All slabs are walked under the locks of all heaps, so that no slab goes back to the page heap
 * meanwhile. Threads may change some values without a lock meanwhile. A sum over several threads
 * therefore mixes values of slightly different moments.
 */
#ifndef CAIRN_ALLOC_STATS_H
#define CAIRN_ALLOC_STATS_H

#include <cairn/cairn.h>

/* Fills `*stats`. Takes and drops the locks of all heaps, and then the lock of the page heap. */
void stats_gather(struct cairn_stats *stats);

#endif
