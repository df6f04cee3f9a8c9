/* run_cache.h - runs of slices that a thread keeps to hand out again, without the page heap and its lock.
 *
 * Runs of large blocks and of slabs, up to 64 slices, last in first out, on a list for each count of slices. A thread's heap
 * has one, and its thread alone uses it. To the page heap what lies here is in use. Between calls, always:
 *
 *     `slices` is the sum over all lists, and at most what `most` was when the last run came
 *     a bit of `filled` is set where the list is not empty: bit 0 for runs of one slice
 *     the record of every run says RUN_CACHED, so that freeing one again is noticed
 *     `long_run` is 0, or a run that is too long for the lists, at most twice as long as all of them may be together
 *
 * From a full cache runs go for each that comes until it has room, of the next longer kind each time, so that sizes that are asked for
 * no longer do not stay for ever; and one goes for each slab that finds none as long, so that a heap that grows does not keep
 * beside what it takes from the machine.
 *
 * The long one is that which came last, for the next long block. Programs that give back a buffer of a megabyte or two mostly ask for
 * the next one soon, of another such size: they get the same memory again, on pages that are in this processor's caches and in no
 * other's, and where nothing is cut off and put elsewhere free memory does not come to lie in pieces. What is unused of it was
 * the program's a moment ago.
 */
#ifndef CAIRN_ALLOC_RUN_CACHE_H
#define CAIRN_ALLOC_RUN_CACHE_H

#include "alloc/slab.h"

enum {
    RUN_CACHE_RUN_MAX = 64, /* slices of one run: 1 MiB */
    RUN_CACHE_MOST = 128,   /* of all runs: 2 MiB */
    RUN_CACHE_LEAST =
        32, /* `most` where there are many threads: what sleeping ones hold is bounded together */
    RUN_CACHE_TOGETHER = 1024,
};

/* By a quarter; by half since a run went because the cache was full, until one is asked for in vain: what does not serve would go. */
enum { SLACK_QUARTER = 2, SLACK_HALF = 1 };

struct run_cache {
    uint64_t filled;
    uint32_t slices;
    uint32_t most;       /* slices; 0: nothing is kept */
    uint32_t evicted;    /* slices of the run that went last */
    uint32_t long_run;   /* by slice index; 0: none */
    uint32_t long_slack; /* slices of long runs that are out and nobody asked for, about */
    uint32_t
        slack_shift; /* a run serves that is longer by at most so many slices >> this: 1 or 2 */
    uint32_t first[RUN_CACHE_RUN_MAX + 1]; /* [n]: of n slices; by slice index */
};

/* The slice index of the last run that came with so many slices; there is one. */
static inline uint32_t run_cache_pop(struct run_cache *cache, uint32_t count)
{
    uint32_t index = cache->first[count];
    uint32_t next = slab_at(index)->next;
    ASSUME(index != 0);
    cache->first[count] = next;
    cache->filled ^= (uint64_t)(next == 0)
                     << (count - 1); /* no branch: half of the time nobody knows */
    cache->slices -= count;
    return index;
}

/* The slice index of a run of at least `slices`, 1 to RUN_CACHE_RUN_MAX, and as much more as `slack_shift` allows: its record is
 * RUN_CACHED, and says how many. 0: there is none. */
static inline uint32_t run_cache_take(struct run_cache *cache, uint32_t slices)
{
    uint64_t fits = cache->filled >> (slices - 1);
    if (fits == 0)
        return 0;
    uint32_t more = (uint32_t)__builtin_ctzll(fits);
    if (more > slices >> cache->slack_shift)
        return 0;
    return run_cache_pop(cache, slices + more);
}

/* The same, and no more. */
static inline uint32_t run_cache_take_equal(struct run_cache *cache, uint32_t slices)
{
    return (cache->filled >> (slices - 1) & 1) == 0 ? 0 : run_cache_pop(cache, slices);
}

/* How much one of so many threads may keep. */
uint32_t run_cache_share(uint32_t threads);

/* From now on no thread may keep anything: what one that sleeps keeps nobody else can give back. Before the program has a second
 * thread. */
void run_cache_keep_nothing(void);

/* Keeps a run that nobody uses; false: it is too long, or too much. */
static inline bool run_cache_put(struct run_cache *cache, struct slab *run)
{
    uint32_t count = run->slices;
    if (count > RUN_CACHE_RUN_MAX || cache->slices + count > cache->most)
        return false;
    atomic_store_explicit(&run->kind, RUN_CACHED, memory_order_relaxed);
    run->next = cache->first[count];
    cache->first[count] = (uint32_t)slab_index(run);
    cache->filled |= UINT64_C(1) << (count - 1);
    cache->slices += count;
    return true;
}

/* The record of any run, taken out: the next longer one than the last, or the shortest. NULL: there is none left. */
struct slab *run_cache_evict(struct run_cache *cache);

/* Slices of a long run that may be kept. */
static inline uint32_t run_cache_long_most(const struct run_cache *cache)
{
    return 2 * cache->most;
}

/* Keeps a run that is too long for run_cache_put(); false: it is too long for this, too, or there is one, or it is not. */
static inline bool run_cache_put_long(struct run_cache *cache, struct slab *run)
{
    uint32_t count = run->slices;
    if (cache->long_run != 0 || count <= RUN_CACHE_RUN_MAX || count > run_cache_long_most(cache))
        return false;
    cache->long_slack -= run->slack < cache->long_slack ? run->slack : cache->long_slack;
    run->slack = 0;
    atomic_store_explicit(&run->kind, RUN_CACHED, memory_order_relaxed);
    cache->long_run = (uint32_t)slab_index(run);
    return true;
}

/* The record of the long run, taken out; NULL: there is none. */
static inline struct slab *run_cache_take_long(struct run_cache *cache)
{
    if (cache->long_run == 0)
        return NULL;
    struct slab *run = slab_at(cache->long_run);
    cache->long_run = 0;
    return run;
}

/* Asserts the contract. */
void run_cache_check(const struct run_cache *cache);

#endif
