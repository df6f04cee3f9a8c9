#include "alloc/run_cache.h"

#include "alloc/broken.h"

static bool keeps_nothing;

void run_cache_keep_nothing(void)
{
    keeps_nothing = true;
}

uint32_t run_cache_share(uint32_t threads)
{
    if (keeps_nothing)
        return 0;
    uint32_t share = RUN_CACHE_TOGETHER / (threads > 0 ? threads : 1);
    return share > RUN_CACHE_MOST    ? RUN_CACHE_MOST
           : share < RUN_CACHE_LEAST ? RUN_CACHE_LEAST
                                     : share;
}

struct slab *run_cache_evict(struct run_cache *cache)
{
    if (cache->filled == 0)
        return NULL;
    uint64_t longer =
        cache->evicted < RUN_CACHE_RUN_MAX ? cache->filled >> cache->evicted << cache->evicted : 0;
    cache->evicted = 1 + (uint32_t)__builtin_ctzll(longer != 0 ? longer : cache->filled);
    struct slab *run;
    (void)run_cache_pop(cache, cache->evicted, &run);
    return run;
}

void run_cache_check(const struct run_cache *cache)
{
    uint32_t slices = 0;
    for (unsigned count = 1; count <= RUN_CACHE_RUN_MAX; count++) {
        CHECK_THAT((cache->filled >> (count - 1) & 1) == (cache->first[count] != 0));
        for (uint32_t index = cache->first[count]; index != 0; index = slab_at(index)->next) {
            CHECK_THAT(slab_at(index)->kind == RUN_CACHED && slab_at(index)->slices == count);
            slices += count;
            CHECK_THAT(slices <= cache->slices);
        }
    }
    CHECK_THAT(slices == cache->slices && slices <= RUN_CACHE_MOST_LEARNT);
    CHECK_THAT(cache->slack_shift == SLACK_QUARTER || cache->slack_shift == SLACK_HALF);
    const struct slab *run = slab_at(cache->long_run);
    CHECK_THAT(cache->long_run == 0 ||
               (run->kind == RUN_CACHED && run->slices > RUN_CACHE_RUN_MAX &&
                run->slices <= 2 * RUN_CACHE_MOST_LEARNT));
}
