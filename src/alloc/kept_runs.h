/* kept_runs.h - which runs a thread keeps in its run_cache.h, and which go to the page heap instead.
 *
 * All of it is for the cache's own thread.
 */
#ifndef CAIRN_ALLOC_KEPT_RUNS_H
#define CAIRN_ALLOC_KEPT_RUNS_H

#include "alloc/large.h"
#include "alloc/run_cache.h"

/* A large block, or a slab that has ended, is free: its run is kept, for which others go, or goes back itself. From now on `most`
 * slices may be kept. */
void kept_runs_free(struct run_cache *cache, struct slab *run, uint32_t most);

/* The slice index of a run for a slab. Where none is as long, the heap grows while others lie unused: one goes back. 0: there is
 * none. */
size_t kept_runs_take(struct run_cache *cache, size_t slices);

/* A block of `size` bytes, above what the lists are for, of the long run: as that is, where it is less than twice too long, or lengthened.
 * Of the blocks that are out no more than such a run's length in all was not asked for. NULL: there is none, or it will not do, and is free
 * then. */
void *kept_runs_take_long(struct run_cache *cache, size_t size);

/* All go back. */
void kept_runs_drain(struct run_cache *cache);

#endif
