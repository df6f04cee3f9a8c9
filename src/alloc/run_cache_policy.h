/* run_cache_policy.h - decides which free runs a thread keeps in its run_cache.h, and which go to
 * the page heap.
 *
 * Only the thread that owns the cache calls these functions.
 */
#ifndef CAIRN_ALLOC_RUN_CACHE_POLICY_H
#define CAIRN_ALLOC_RUN_CACHE_POLICY_H

#include "alloc/large.h"
#include "alloc/run_cache.h"

/* Takes over a free run, of a large block or of a slab that has ended. A run that is too long to be
 * kept goes to the page heap. For any other run, evicts kept runs until the new run fits, and keeps
 * the new run. From now on the cache may keep `most` slices. */
void run_cache_policy_free(struct run_cache *cache, struct slab *run, uint32_t most);

/* Takes a run of exactly `slices` for a slab, and returns its slice index. Returns 0 if the thread
 * keeps no such run, or if the pages of that run were moved (large_move()). When the function
 * returns 0, it has given one kept run, if there was any, back to the page heap, so that a growing
 * heap does not keep runs that it cannot use. */
size_t run_cache_policy_take(struct run_cache *cache, size_t slices);

/* Turns the kept long run into a block of `size` bytes, which is more than the lists of run_cache.h
 * serve, and returns the block. A run that is too short is lengthened. A run that is too long
 * serves as it is, if two conditions hold: it is less than twice as long as requested, and the
 * slack (slices that the program did not request) of all such blocks in use stays within
 * run_cache_long_most(). Returns NULL if the thread keeps no long run, or if that run does not
 * serve. A run that does not serve is given back. */
void *run_cache_policy_take_long(struct run_cache *cache, size_t size);

/* Gives all kept runs back. */
void run_cache_policy_drain(struct run_cache *cache);

#endif
