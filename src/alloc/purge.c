#include "alloc/purge.h"

#include "base/clock.h"

enum {
    SLACK_SLICES = (1 << 20) / SLICE_BYTES,
    HELD_SLICES = (128 << 20) / SLICE_BYTES,
    EPOCH_MS = 250,
};

static _Atomic uint64_t epoch_began_ns;

/* True for one thread, once an epoch. */
static bool epoch_is_over(void)
{
    uint64_t now = clock_now_ns();
    uint64_t began = atomic_load_explicit(&epoch_began_ns, memory_order_relaxed);
    return now - began > EPOCH_MS * NS_PER_MS &&
           atomic_compare_exchange_strong_explicit(&epoch_began_ns, &began, now, memory_order_relaxed,
                                                   memory_order_relaxed);
}

void purge_free(size_t index, size_t slices)
{
    struct page_heap_level level = page_heap_free(index, slices);
    size_t slack = level.used / 32 > SLACK_SLICES ? level.used / 32 : SLACK_SLICES;
    if (UNLIKELY(level.idle > level.used + HELD_SLICES))
        page_heap_purge((level.used + HELD_SLICES) / 2 << SLICE_SHIFT);
    else if (level.idle > slack && epoch_is_over())
        page_heap_purge((level.idle_least > slack ? level.idle - level.idle_least + slack : level.idle)
                        << SLICE_SHIFT);
}
