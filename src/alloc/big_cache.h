/* big_cache.h - keeps free runs of large blocks by the place in the program that allocated them.
 * CAIRN_BIG_CACHE=sites turns this on.
 *
 * Code that allocates a large block mostly frees it and soon allocates another of similar size. A
 * place is the return address of the call, together with bits 4 to 11 of the address of the stack
 * frame. These bits tell most callers of one wrapper apart. The number of a place is a hash of the
 * two.
 *
 * Each thread has 64 rings of four runs. The upper bits of a place's number select its ring. If
 * another place takes over a ring, the ring forgets the runs of the old place. Two places with the
 * same number are treated as one place.
 *
 * A block that is freed goes to the ring of the place that allocated it, in the cache of the thread
 * that frees it. A full ring forgets its oldest run. A block that realloc moved has no place, and
 * its run goes to the page heap. While the cache is on, the lists of run_cache.h keep only the runs
 * of slabs. Between calls, always:
 *
 *     slices == sum of the lengths of all kept runs
 *     slices <= `most` at the last big_cache_put()
 *     record(run).kind == RUN_CACHED for every kept run
 *     runs[] of a ring begins with its kept runs, the newest first; the remaining entries are 0
 *
 * Only the thread that owns a cache calls the functions that have a cache as their argument.
 */
#ifndef CAIRN_ALLOC_BIG_CACHE_H
#define CAIRN_ALLOC_BIG_CACHE_H

#include "alloc/slab.h"

enum { BIG_CACHE_RINGS = 64, BIG_CACHE_RUNS = 4 };

struct big_cache {
    uint32_t slices;
    uint32_t hand; /* the ring that big_cache_evict() looks at first */
    struct big_cache_ring {
        uint32_t place;                /* 0: unused */
        uint32_t runs[BIG_CACHE_RUNS]; /* slice indices */
    } rings[BIG_CACHE_RINGS];
};

extern bool big_cache_on __attribute__((visibility("hidden")));

static inline bool big_cache_is_on(void)
{
    return big_cache_on;
}

/* From now on, the free runs of large blocks are kept by place. Called before the program has a
 * second thread. */
void big_cache_begin(void);

/* Returns an empty cache, whose memory is never given back. Returns NULL if there is no memory.
 * Takes the page heap's lock. */
struct big_cache *big_cache_new(void);

/* Returns the number of the place, never 0. `caller` is the return address of the program's call.
 * `frame` is the address of the stack frame of the function that asks. A place gets the same number
 * each time only if the same function asks for it. */
uint32_t big_cache_place(const void *caller, const void *frame);

/* Takes the shortest run of this place that has at least `slices` slices and is longer by a quarter
 * at most. Returns its record, or NULL. */
struct slab *big_cache_take(struct big_cache *cache, uint32_t place, size_t slices);

/* Takes the oldest run of the next ring that has one. Returns its record, or NULL if the cache is
 * empty. */
struct slab *big_cache_evict(struct big_cache *cache);

/* Keeps a run for the place that its record names. Takes other runs out until at most `most` slices
 * are kept, and calls `forget` for each of them. Calls `forget` for the run itself if it is longer
 * than `most`. */
void big_cache_put(struct big_cache *cache, struct slab *run, uint32_t most,
                   void (*forget)(struct slab *run));

/* Asserts the contract, apart from `most` and the order of a ring. */
void big_cache_check(const struct big_cache *cache);

#endif
