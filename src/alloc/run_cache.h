/* run_cache.h - free runs that a thread keeps, to use them again without the page heap and its
 * lock.
 *
 * Each heap has one cache, which only the heap's thread uses. The cache holds runs of large blocks
 * and of ended slabs. Runs of 1 to 64 slices lie on lists, one list per length, last in, first out.
 * One longer run may be kept beside the lists: the long run. The page heap counts all kept runs as
 * used. run_cache_policy.h decides which runs are kept and which are given back.
 *
 * Between calls, always:
 *
 *     slices == sum of the lengths of the runs on all lists
 *     slices <= value of `most` when the last run arrived
 *     bit n - 1 of `filled` is set if and only if first[n] != 0
 *     record(run).kind == RUN_CACHED for every kept run, so that a second free of it is noticed
 *     long_run == 0, or RUN_CACHE_RUN_MAX < length(long_run) <= 2 * `most` when it arrived
 *
 * When the cache is full, an arriving run evicts others until it fits. Each eviction takes the next
 * longer list in turn, so that sizes which are no longer requested do not stay forever. If a new
 * slab finds no kept run of its length, the cache gives one run back to the page heap. A growing
 * heap then does not keep unused runs while it takes new memory from the machine.
 *
 * The long run is the run of more than 64 slices that was freed last. Programs that free a buffer
 * of one or two megabytes often request another of similar size soon. Such a program gets the same
 * memory again, which is probably still in this processor's caches. No part of the run is cut off
 * and placed elsewhere, so free memory does not fragment. If the new block is shorter, the rest of
 * the run stays resident and unused.
 */
#ifndef CAIRN_ALLOC_RUN_CACHE_H
#define CAIRN_ALLOC_RUN_CACHE_H

#include "alloc/slab.h"

enum {
    RUN_CACHE_RUN_MAX = 64, /* longest run on a list, in slices: 1 MiB */
    RUN_CACHE_MOST = 128,   /* most slices on all lists together: 2 MiB */

    /* Most slices on all lists together if their number is learnt (run_cache_learning.h). */
    RUN_CACHE_MOST_LEARNT = 16 * RUN_CACHE_MOST,

    /* With many threads, `most` is RUN_CACHE_TOGETHER slices divided by their number, but at least
     * RUN_CACHE_LEAST. This bounds the memory that sleeping threads keep. */
    RUN_CACHE_LEAST = 32,
    RUN_CACHE_TOGETHER = 1024,
};

/* How much longer than requested a run may be, as a shift of the requested length: a quarter or a
 * half. An eviction from a full cache sets `slack_shift` to a half, because a kept run that serves
 * no request would soon be evicted anyway. A large request that finds no run, although the lists
 * are not empty, sets `slack_shift` back to a quarter. */
enum { SLACK_QUARTER = 2, SLACK_HALF = 1 };

struct run_cache {
    uint64_t filled;   /* bit n - 1: list n is not empty */
    uint32_t slices;   /* total length of the runs on all lists */
    uint32_t most;     /* limit of `slices`; 0: keep no runs */
    uint32_t evicted;  /* length of the run evicted last */
    uint32_t long_run; /* slice index of the long run; 0: none */

    /* Estimate of the slices of long runs in use that the program did not request. It is too high
     * if other threads free such runs, until all kept runs are given back. */
    uint32_t long_slack;

    uint32_t slack_shift;                  /* SLACK_QUARTER or SLACK_HALF */
    uint32_t first[RUN_CACHE_RUN_MAX + 1]; /* slice index of the first run on list n */
};

/* Takes the run that arrived last from list `count`, which is not empty. Returns its slice index,
 * and sets `*run` to its record. */
static inline uint32_t run_cache_pop(struct run_cache *cache, uint32_t count, struct slab **run)
{
    uint32_t index = cache->first[count];
    *run = slab_at(index);
    uint32_t next = (*run)->next;
    ASSUME(index != 0);
    /* Computed without a branch, which the processor would mispredict half of the time. */
    cache->filled ^= (uint64_t)(next == 0) << (count - 1);
    slab_interrupt_here(); /* a handler finds no bit set for an empty list */
    cache->first[count] = next;
    slab_interrupt_here(); /* a handler finds `slices` right or too high */
    cache->slices -= count;
    return index;
}

/* Takes a run of at least `slices` slices that is longer by at most `slices >> slack_shift`.
 * `slices` is 1 to RUN_CACHE_RUN_MAX. Returns the run's slice index and sets `*run` to its record,
 * which still has the kind RUN_CACHED and the length of the run. Returns 0 if no run fits. */
static inline uint32_t run_cache_take(struct run_cache *cache, uint32_t slices, struct slab **run)
{
    uint64_t fits = cache->filled >> (slices - 1);
    if (fits == 0)
        return 0;
    uint32_t more = (uint32_t)__builtin_ctzll(fits);
    if (more > slices >> cache->slack_shift)
        return 0;
    return run_cache_pop(cache, slices + more, run);
}

/* Like run_cache_take(), but only takes a run of exactly `slices` slices. */
static inline uint32_t run_cache_take_equal(struct run_cache *cache, uint32_t slices,
                                            struct slab **run)
{
    return (cache->filled >> (slices - 1) & 1) == 0 ? 0 : run_cache_pop(cache, slices, run);
}

/* Returns how many slices each of `threads` threads may keep on its lists. */
uint32_t run_cache_share(uint32_t threads);

/* From now on no thread keeps any run, because no other thread could give back the runs of a thread
 * that sleeps. Called before the program has a second thread. */
void run_cache_keep_nothing(void);

/* Keeps a free run on its list. Returns false if the run is too long or the cache too full. */
static inline bool run_cache_put(struct run_cache *cache, struct slab *run)
{
    uint32_t count = run->slices;
    if (count > RUN_CACHE_RUN_MAX || cache->slices + count > cache->most)
        return false;
    atomic_store_explicit(&run->kind, RUN_CACHED, memory_order_relaxed);
    run->next = cache->first[count];
    cache->first[count] = (uint32_t)slab_index(run);
    cache->slices += count;
    /* A handler finds `slices` right or too high, and no bit of `filled` set for an empty list. */
    slab_interrupt_here();
    cache->filled |= UINT64_C(1) << (count - 1);
    return true;
}

/* Takes a run off its list: one of the shortest runs that are longer than the run evicted last. If
 * no kept run is longer than that one, takes one of the shortest runs of all. Returns the run's
 * record, or NULL if all lists are empty. */
struct slab *run_cache_evict(struct run_cache *cache);

/* Returns the length, in slices, of the longest run that may be kept as the long run. */
static inline uint32_t run_cache_long_most(const struct run_cache *cache)
{
    return 2 * cache->most;
}

/* Notes that a long run in use has lost `slices` of the slices that the program did not request. */
static inline void run_cache_lose_slack(struct run_cache *cache, uint32_t slices)
{
    cache->long_slack -= slices < cache->long_slack ? slices : cache->long_slack;
}

/* Keeps a run as the long run. Returns false if the run is too short or too long, or if there
 * already is a long run. */
static inline bool run_cache_put_long(struct run_cache *cache, struct slab *run)
{
    uint32_t count = run->slices;
    if (cache->long_run != 0 || count <= RUN_CACHE_RUN_MAX || count > run_cache_long_most(cache))
        return false;
    run_cache_lose_slack(cache, run->slack);
    run->slack = 0;
    atomic_store_explicit(&run->kind, RUN_CACHED, memory_order_relaxed);
    cache->long_run = (uint32_t)slab_index(run);
    return true;
}

/* Takes the long run. Returns its record, or NULL if there is none. */
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
