#include "alloc/run_cache_policy.h"

#include "alloc/hardening.h"
#include "alloc/large_guard.h"

/* Frees a long run. Keeps the run in place of the long run kept so far, if the run is short enough
 * to be kept. */
static void free_long(struct run_cache *cache, struct slab *run)
{
    uint32_t most = run_cache_long_most(cache);
    struct slab *before = run_cache_take_long(cache);
    if (before != NULL && (run->slices <= most || before->slices > most)) {
        large_free(before);
        before = NULL;
    }
    if (before != NULL)
        run_cache_put_long(cache, before);
    if (!run_cache_put_long(cache, run))
        large_free(run);
}

void run_cache_policy_free(struct run_cache *cache, struct slab *run, uint32_t most)
{
    cache->most = most;
    if (run->slices > RUN_CACHE_RUN_MAX) {
        free_long(cache, run);
    } else if (run->slices <= most) {
        while (!run_cache_put(cache, run)) {
            struct slab *other = run_cache_evict(cache);
            /* `slices` can be too high in the child of a fork: a signal handler may interrupt a
             * change of the cache and fork. Then all lists may be empty. */
            if (UNLIKELY(other == NULL))
                cache->slices = 0;
            else
                large_free(other);
            cache->slack_shift = SLACK_HALF;
        }
    } else {
        large_free(run);
    }
}

size_t run_cache_policy_take(struct run_cache *cache, size_t slices)
{
    struct slab *run = NULL;
    uint32_t index = run_cache_take_equal(cache, (uint32_t)slices, &run);
    if (index != 0 && !run->moved) {
        if (CAIRN_HARDENED)
            large_guard_open(run);
        return index;
    }
    if (index == 0)
        run = run_cache_take_long(cache);
    if (run == NULL)
        run = run_cache_evict(cache);
    if (run != NULL)
        large_free(run);
    return 0;
}

void *run_cache_policy_take_long(struct run_cache *cache, size_t size)
{
    size_t want = large_slices(size); /* 0 if rounding up overflows */
    struct slab *run = want - 1 < REGION_SLICES_MAX ? run_cache_take_long(cache) : NULL;
    if (run == NULL)
        return NULL;
    size_t have = run->slices;
    size_t slack = want < have ? have - want : 0;
    if (CAIRN_HARDENED && want > have)
        large_guard_open(run);
    bool fits = want <= have
                    ? slack < want && cache->long_slack + slack <= run_cache_long_most(cache)
                    : large_resize(run, size);
    if (!fits) {
        large_free(run);
        return NULL;
    }
    cache->long_slack += (uint32_t)slack;
    return large_reuse(run, slack);
}

void run_cache_policy_drain(struct run_cache *cache)
{
    struct slab *run;
    while ((run = run_cache_evict(cache)) != NULL)
        large_free(run);
    run = run_cache_take_long(cache);
    if (run != NULL)
        large_free(run);
    cache->slack_shift = SLACK_QUARTER;
    cache->long_slack = 0;
}
