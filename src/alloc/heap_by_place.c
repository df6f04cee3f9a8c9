/* heap_by_place.c - the large blocks of a heap whose runs are kept by place (big_cache.h). */
#include "alloc/heap.h"
#include "alloc/purge.h"
#include "alloc/run_cache_learning.h"

/* Without this cache, a thread keeps up to `most` slices on lists, and one run of up to 2 * `most`
 * slices (run_cache.h). So the cache keeps up to 3 * `most` slices. */
enum { MOST_FACTOR = 3 };

void heap_free_by_place(struct heap *heap, struct slab *slab)
{
    if (heap->big == NULL && slab->place != 0)
        heap->big = big_cache_new();
    if (heap->big == NULL || slab->place == 0) {
        large_free(slab);
        return;
    }
    if (UNLIKELY(run_cache_is_learnt()))
        run_cache_learning_freed(heap_kept_slices(heap));
    big_cache_put(heap->big, slab, MOST_FACTOR * heap_run_share(), large_free);
    heap->trim.due |= heap->big->slices > HEAP_TRIM_SLICES;
}

void *heap_reuse_by_place(struct heap *heap, size_t size, uint32_t place)
{
    enum { LOOK_EVERY = 64 };
    size_t slices = large_slices(size); /* 0 if rounding up overflows */
    if (heap->big == NULL || slices == 0)
        return NULL;
    struct slab *run = big_cache_take(heap->big, place, slices);
    if (run == NULL)
        return NULL;
    if (++heap->long_reuses % LOOK_EVERY == 0)
        purge_look();
    return large_reuse(run, 0);
}

void heap_shrink_by_place(struct heap *heap)
{
    struct slab *run = big_cache_evict(heap->big);
    if (run != NULL)
        large_free(run);
}

void heap_drain_by_place(struct heap *heap)
{
    struct slab *run;
    if (heap->big == NULL)
        return;
    lock_enter();
    while ((run = big_cache_evict(heap->big)) != NULL)
        large_free(run);
    lock_leave();
}
