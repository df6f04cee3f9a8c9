#include "alloc/stats.h"

#include "alloc/large.h"
#include "alloc/learning_control.h"
#include "alloc/page_heap.h"
#include "alloc/purge.h"
#include "alloc/thread.h"

_Static_assert((int)CAIRN_CLASS_COUNT == (int)SIZE_CLASS_COUNT,
               "the header says how many classes there are");

/* --- gathering -------------------------------------------------------------------------------- */

static void add_slab(struct cairn_stats *stats, struct slab *slab)
{
    struct cairn_class_stats *class = &stats->classes[slab->class];
    size_t carved = slab->carved;
    size_t hidden = remote_state(slab) == REMOTE_CURRENT ? slab_hidden(slab) : 0;
    size_t live = slab_live(slab);
    live -= hidden < live ? hidden : live;
    size_t posted = remote_count_of(atomic_load_explicit(&slab->posted, memory_order_relaxed));
    class->slab_count++;
    class->block_count += carved;
    class->live_count += live > posted ? live - posted : 0;
    class->fresh_count += slab->capacity > carved ? slab->capacity - carved : 0;
    class->slack_bytes +=
        (slab_slices(slab->class) << SLICE_SHIFT) - slab->capacity * size_class_bytes(slab->class);
    stats->slab_count++;
    stats->remote_frees += posted;
}

/* Walks all slices and adds up slabs, large blocks and kept runs. The walk steps over a whole run
 * at once, unless the run is being made or freed and its length is not valid. */
static void walk(struct cairn_stats *stats)
{
    size_t end = atomic_load_explicit(&region.slices, memory_order_acquire);
    size_t step;
    for (size_t index = 1; index < end; index += step) {
        struct slab *slab = slab_at(index);
        step = 1;
        if (remote_is_slab(slab)) {
            add_slab(stats, slab);
            step = slab_slices(slab->class);
        } else if (slab->kind == RUN_LARGE || slab->kind == RUN_CACHED) {
            size_t slices = slab->slices;
            if (slices == 0 || slices > end - index)
                continue;
            if (slab->kind == RUN_LARGE) {
                stats->large_count++;
                stats->large_bytes += slices << SLICE_SHIFT;
            } else {
                stats->cached_bytes += slices << SLICE_SHIFT;
            }
            step = slices;
        } else if (slab->kind == RUN_OWN || slab->kind == RUN_LOST) {
            stats->own_bytes += SLICE_BYTES;
        }
    }
}

/* Counts the blocks on a heap's lists as cached, not as live. */
static void take_off_lists(struct cairn_stats *stats, const struct heap *heap)
{
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++) {
        struct cairn_class_stats *of = &stats->classes[class];
        for (const struct block *block = heap->list[class]; block != NULL && of->live_count > 0;
             block = block->next) {
            of->live_count--;
            of->cached_count++;
        }
    }
}

/* Counts the blocks on the lists of the caller's heap and of heaps at rest as cached. The lists of
 * another thread cannot be walked while that thread allocates. */
static void take_off_cached(struct cairn_stats *stats)
{
    for (const struct heap *heap = heap_first(); heap != NULL; heap = heap->next)
        if (heap == thread_own_heap() || heap_is_at_rest(heap))
            take_off_lists(stats, heap);
}

/* Counts the blocks that wait in the batches of a heap as freed. */
static void take_off_batches(struct cairn_stats *stats, const struct heap *heap)
{
    for (size_t i = 0; i < BATCHES; i++) {
        const struct batch *batch = &heap->batches[i];
        const struct slab *slab = atomic_load_explicit(&batch->slab, memory_order_relaxed);
        uint32_t count = batch_count(atomic_load_explicit(&batch->word, memory_order_relaxed));
        if (slab == NULL)
            continue;
        size_t *live = &stats->classes[slab->class % SIZE_CLASS_COUNT].live_count;
        *live -= count < *live ? count : *live;
        stats->remote_frees += count;
    }
}

static void add_heaps(struct cairn_stats *stats)
{
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next) {
        const struct heap_statistics *own = &heap->statistics;
        stats->thread_count += heap->has_thread;
        stats->heap_count += heap->shared;
        take_off_batches(stats, heap);
        stats->refills += own->refills;
        stats->slabs_made += own->slabs_made;
        stats->slabs_adopted += own->slabs_adopted;
        stats->remote_frees += own->posts;
        stats->wakes += own->wakes;
        stats->claims += own->claims;
    }
    stats->remote_frees += heap_posts_gone();
}

/* Returns the larger of `frees` and the last number reported. An owner that collects posted blocks
 * meanwhile makes us count them twice or not at all, but the reported number must never fall. */
static uint64_t at_least_as_reported(uint64_t frees)
{
    static _Atomic uint64_t reported;
    uint64_t before = atomic_load_explicit(&reported, memory_order_relaxed);
    while (before < frees &&
           !atomic_compare_exchange_weak_explicit(&reported, &before, frees, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
    return before > frees ? before : frees;
}

void stats_gather(struct cairn_stats *stats)
{
    *stats = (struct cairn_stats){.live_bytes = 0};
    if (!thread_may_lock())
        return;
    heap_lock_all();
    walk(stats);
    take_off_cached(stats);
    add_heaps(stats);
    heap_unlock_all();
    stats->remote_frees = at_least_as_reported(stats->remote_frees);

    stats->live_bytes = stats->large_bytes;
    stats->live_count = stats->large_count;
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++) {
        struct cairn_class_stats *of = &stats->classes[class];
        of->block_bytes = size_class_bytes(class);
        /* The owner may have carved blocks after their number was read. */
        if (of->live_count + of->cached_count > of->block_count)
            of->live_count = of->block_count - of->cached_count;
        stats->live_count += of->live_count;
        stats->live_bytes += of->live_count * of->block_bytes;
        stats->cached_bytes += of->cached_count * of->block_bytes;
        stats->free_bytes +=
            (of->block_count - of->live_count - of->cached_count) * of->block_bytes;
        stats->fresh_bytes += of->fresh_count * of->block_bytes;
        stats->slack_bytes += of->slack_bytes;
    }

    struct page_heap_statistics pages = page_heap_statistics();
    stats->mapped_bytes = pages.mapped_slices << SLICE_SHIFT;
    stats->used_bytes = pages.used_slices << SLICE_SHIFT;
    stats->used_most_bytes = pages.used_most << SLICE_SHIFT;
    stats->idle_bytes = pages.idle_slices << SLICE_SHIFT;
    stats->resident_bytes = stats->used_bytes + stats->idle_bytes;
    stats->record_bytes = pages.record_bytes;
    stats->limit_bytes =
        pages.limit_slices < REGION_SLICES_MAX ? pages.limit_slices << SLICE_SHIFT : 0;
    stats->purged_bytes = pages.purged_bytes;
    stats->map_calls = pages.grown;
    stats->purge_calls = pages.purges;
    stats->held_bytes = purge_held_bytes();
    stats->learnt = learning_changes();
}
