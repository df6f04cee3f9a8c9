#include "alloc/stats.h"

#include "alloc/large.h"
#include "alloc/page_heap.h"
#include "alloc/thread.h"

_Static_assert((int)CAIRN_CLASS_COUNT == (int)SIZE_CLASS_COUNT, "the header says how many classes there are");

/* --- gathering --------------------------------------------------------------------------------------------------- */

static void add_slab(struct cairn_stats *stats, struct slab *slab)
{
    struct cairn_class_stats *class = &stats->classes[slab->class];
    size_t carved = slab->carved;
    size_t live = slab_live(slab);
    size_t posted = remote_count_of(atomic_load_explicit(&slab->posted, memory_order_relaxed));
    class->slab_count++;
    class->block_count += carved;
    class->live_count += live > posted ? live - posted : 0;
    stats->slab_count++;
    stats->remote_frees += posted;
}

/* Runs are passed over by their length, which is believed only as far as it is possible. */
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
        } else if (slab->kind == RUN_LARGE) {
            size_t slices = slab->slices;
            if (slices == 0 || slices > end - index)
                continue;
            stats->large_count++;
            stats->large_bytes += slices << SLICE_SHIFT;
            step = slices;
        }
    }
}

/* Blocks that the calling thread holds ready are not live; those of others cannot be walked while they allocate. */
static void take_off_own(struct cairn_stats *stats)
{
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++) {
        size_t *live = &stats->classes[class].live_count;
        for (const struct block *block = thread_heap->list[class]; block != NULL && *live > 0;
             block = block->next)
            --*live;
    }
}

static void add_heaps(struct cairn_stats *stats)
{
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next) {
        const struct heap_statistics *own = &heap->statistics;
        stats->thread_count += heap->has_thread;
        stats->heap_count += heap->shared;
        stats->refills += own->refills;
        stats->slabs_made += own->slabs_made;
        stats->slabs_adopted += own->slabs_adopted;
        stats->remote_frees += own->posts;
        stats->wakes += own->wakes;
        stats->claims += own->claims;
    }
    stats->remote_frees += heap_posts_gone();
}

void stats_gather(struct cairn_stats *stats)
{
    *stats = (struct cairn_stats){.live_bytes = 0};
    heap_lock_all();
    walk(stats);
    take_off_own(stats);
    add_heaps(stats);
    heap_unlock_all();

    stats->live_bytes = stats->large_bytes;
    stats->live_count = stats->large_count;
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++) {
        struct cairn_class_stats *of = &stats->classes[class];
        of->block_bytes = size_class_bytes(class);
        if (of->live_count > of->block_count) /* a slab was cut between the two */
            of->live_count = of->block_count;
        stats->live_count += of->live_count;
        stats->live_bytes += of->live_count * of->block_bytes;
    }

    struct page_heap_statistics pages = page_heap_statistics();
    stats->mapped_bytes = pages.mapped_slices << SLICE_SHIFT;
    stats->used_bytes = pages.used_slices << SLICE_SHIFT;
    stats->used_most_bytes = pages.used_most << SLICE_SHIFT;
    stats->idle_bytes = pages.idle_slices << SLICE_SHIFT;
    stats->resident_bytes = stats->used_bytes + stats->idle_bytes;
    stats->limit_bytes = pages.limit_slices < REGION_SLICES_MAX ? pages.limit_slices << SLICE_SHIFT : 0;
    stats->purged_bytes = pages.purged_bytes;
    stats->map_calls = pages.grown;
    stats->purge_calls = pages.purges;
}

/* --- writing ----------------------------------------------------------------------------------------------------- */

void stats_write_json(struct text *text, const struct cairn_stats *stats)
{
    text_add_char(text, '{');
    const struct {
        const char *name;
        uint64_t value;
    } members[] = {
        {"live_bytes", stats->live_bytes},
        {"live_count", stats->live_count},
        {"large_bytes", stats->large_bytes},
        {"large_count", stats->large_count},
        {"mapped_bytes", stats->mapped_bytes},
        {"used_bytes", stats->used_bytes},
        {"used_most_bytes", stats->used_most_bytes},
        {"idle_bytes", stats->idle_bytes},
        {"resident_bytes", stats->resident_bytes},
        {"limit_bytes", stats->limit_bytes},
        {"purged_bytes", stats->purged_bytes},
        {"map_calls", stats->map_calls},
        {"purge_calls", stats->purge_calls},
        {"slab_count", stats->slab_count},
        {"thread_count", stats->thread_count},
        {"heap_count", stats->heap_count},
        {"refills", stats->refills},
        {"slabs_made", stats->slabs_made},
        {"slabs_adopted", stats->slabs_adopted},
        {"remote_frees", stats->remote_frees},
        {"wakes", stats->wakes},
        {"claims", stats->claims},
    };
    for (size_t i = 0; i < COUNT_OF(members); i++)
        text_add_json_unsigned(text, members[i].name, members[i].value);
    text_add_json_key(text, "classes");
    text_add_char(text, '[');
    bool first = true;
    for (unsigned i = 0; i < SIZE_CLASS_COUNT; i++) {
        const struct cairn_class_stats *class = &stats->classes[i];
        if (class->slab_count == 0)
            continue;
        text_add(text, first ? "{" : ",{");
        first = false;
        text_add_json_unsigned(text, "block_bytes", class->block_bytes);
        text_add_json_unsigned(text, "slab_count", class->slab_count);
        text_add_json_unsigned(text, "block_count", class->block_count);
        text_add_json_unsigned(text, "live_count", class->live_count);
        text_add_char(text, '}');
    }
    text_add(text, "]}");
}

static void line(struct text *text, const char *says, uint64_t value, const char *unit)
{
    text_add(text, "cairn: ");
    text_add(text, says);
    text_add_char(text, ' ');
    text_add_unsigned(text, value);
    text_add(text, unit);
}

void stats_write_lines(struct text *text, const struct cairn_stats *stats)
{
    line(text, "live", stats->live_bytes, " bytes in ");
    text_add_unsigned(text, stats->live_count);
    text_add(text, " blocks, ");
    text_add_unsigned(text, stats->large_bytes);
    text_add(text, " of them in ");
    text_add_unsigned(text, stats->large_count);
    text_add(text, " large ones\n");
    line(text, "held", stats->used_bytes, " bytes, at most ");
    text_add_unsigned(text, stats->used_most_bytes);
    text_add(text, "; ");
    text_add_unsigned(text, stats->idle_bytes);
    text_add(text, " more are idle, ");
    text_add_unsigned(text, stats->mapped_bytes);
    text_add(text, " are mapped\n");
    line(text, "given back", stats->purged_bytes, " bytes in ");
    text_add_unsigned(text, stats->purge_calls);
    text_add(text, " calls; more asked for in ");
    text_add_unsigned(text, stats->map_calls);
    text_add(text, "\n");
    line(text, "threads", stats->thread_count, ", slabs ");
    text_add_unsigned(text, stats->slab_count);
    text_add(text, ", refills ");
    text_add_unsigned(text, stats->refills);
    text_add(text, ", frees by other threads ");
    text_add_unsigned(text, stats->remote_frees);
    text_add(text, "\n");
    for (unsigned i = 0; i < SIZE_CLASS_COUNT; i++) {
        const struct cairn_class_stats *class = &stats->classes[i];
        if (class->slab_count == 0)
            continue;
        line(text, "of", class->block_bytes, " bytes: ");
        text_add_unsigned(text, class->live_count);
        text_add(text, " live of ");
        text_add_unsigned(text, class->block_count);
        text_add(text, " blocks in ");
        text_add_unsigned(text, class->slab_count);
        text_add(text, " slabs\n");
    }
}
