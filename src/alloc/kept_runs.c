#include "alloc/kept_runs.h"

/* The one that was kept goes, and this one comes in its place, where it may. */
static void free_long(struct run_cache *cache, struct slab *run)
{
    struct slab *goes = run;
    if (run->slices <= run_cache_long_most(cache)) {
        goes = run_cache_take_long(cache);
        run_cache_put_long(cache, run);
    }
    if (goes != NULL)
        large_free(goes);
}

void kept_runs_free(struct run_cache *cache, struct slab *run, uint32_t most)
{
    cache->most = most;
    if (run->slices > RUN_CACHE_RUN_MAX) {
        free_long(cache, run);
    } else if (run->slices <= most) {
        while (!run_cache_put(cache, run)) {
            large_free(run_cache_evict(cache));
            cache->slack_shift = SLACK_HALF;
        }
    } else {
        large_free(run);
    }
}

size_t kept_runs_take(struct run_cache *cache, size_t slices)
{
    uint32_t index = run_cache_take_equal(cache, (uint32_t)slices);
    if (index != 0 && !slab_at(index)->moved)
        return index;
    struct slab *run = index != 0 ? slab_at(index) : run_cache_take_long(cache);
    if (run == NULL)
        run = run_cache_evict(cache);
    if (run != NULL)
        large_free(run);
    return 0;
}

void *kept_runs_take_long(struct run_cache *cache, size_t size)
{
    struct slab *run = run_cache_take_long(cache);
    if (run == NULL)
        return NULL;
    size_t have = run->slices;
    size_t want = large_slices(size); /* 0 where the sum overflows */
    if (want <= have ? have < 2 * want : large_resize(run, size))
        return large_reuse(run);
    large_free(run);
    return NULL;
}

void kept_runs_drain(struct run_cache *cache)
{
    struct slab *run;
    while ((run = run_cache_evict(cache)) != NULL)
        large_free(run);
    run = run_cache_take_long(cache);
    if (run != NULL)
        large_free(run);
    cache->slack_shift = SLACK_QUARTER;
}
