#define _GNU_SOURCE 1

#include "launch/peak.h"

#include <assert.h>

static uint64_t max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t resident(const struct peak_reading *reading)
{
    return reading->anon_bytes + reading->shmem_bytes;
}

struct peak peak_begin(uint64_t slack_bytes)
{
    return (struct peak){.slack_bytes = slack_bytes};
}

static bool exceeds(uint64_t bound, uint64_t known, uint64_t slack)
{
    return bound > known && bound - known > slack;
}

/* Forgets the pending gap. If the kernel reclaimed no page cache between the beginning of the gap
 * and the last reading, the bounds of the gap hold, and the peak is first raised to them. */
static void settle(struct peak *peak)
{
    const struct peak_gap *gap = &peak->gap;
    if (gap->cache_taken == peak->last.cache_taken) {
        if (exceeds(gap->bytes, peak->peak_bytes, gap->slack_bytes))
            peak->peak_bytes = gap->bytes;
        if (exceeds(gap->less_lazy_bytes, peak->less_lazy_bytes, gap->slack_bytes))
            peak->less_lazy_bytes = min(gap->less_lazy_bytes, peak->peak_bytes);
    }
    peak->gap = (struct peak_gap){0};
}

/* Returns the gap for a moment after `cache_taken` was read. At that moment `charged_max` bytes
 * were charged. At most `other` bytes of them were other memory, and at most `lazy` bytes of them
 * were lazily freed. */
static struct peak_gap gap_since(uint64_t cache_taken, uint64_t charged_max, uint64_t other,
                                 uint64_t lazy, uint64_t slack)
{
    uint64_t bytes = less(charged_max, other);
    return (struct peak_gap){.bytes = bytes,
                             .less_lazy_bytes = less(bytes, lazy),
                             .slack_bytes = slack,
                             .cache_taken = cache_taken};
}

void peak_add(struct peak *peak, const struct peak_reading *reading)
{
    uint64_t lazy = min(reading->lazy_bytes, resident(reading));
    peak->peak_bytes = max(peak->peak_bytes, resident(reading));
    peak->less_lazy_bytes = max(peak->less_lazy_bytes, resident(reading) - lazy);
    peak->lazy_peak_bytes = max(peak->lazy_peak_bytes, lazy);

    uint64_t lazy_around = max(lazy, peak->last.lazy_bytes);
    peak->peak_bytes = max(peak->peak_bytes, reading->at_least_bytes);
    peak->less_lazy_bytes = max(peak->less_lazy_bytes, less(reading->at_least_bytes, lazy_around));

    if (reading->charged != PEAK_CHARGED_UNKNOWN) {
        peak->charged_peak_bytes = max(peak->charged_peak_bytes, reading->charged_max_bytes);
        peak->other_max_bytes = max(peak->other_max_bytes, reading->other_bytes);
    }
    struct peak_reading before = peak->last;
    peak->last = *reading;
    peak->last.lazy_bytes = lazy;
    settle(peak);
    if (peak->count++ == 0)
        before.cache_taken = peak->cache_taken_first = reading->cache_taken;
    if (reading->charged == PEAK_CHARGED_INTERVAL) {
        uint64_t most = max(reading->other_bytes, before.other_bytes);
        uint64_t change = most - min(reading->other_bytes, before.other_bytes);
        peak->gap = gap_since(before.cache_taken, reading->charged_max_bytes, most, lazy_around,
                              peak->slack_bytes + change);
    }
}

void peak_end(struct peak *peak)
{
    if (peak->last.charged == PEAK_CHARGED_LIFETIME)
        peak->gap = gap_since(peak->cache_taken_first, peak->last.charged_max_bytes,
                              peak->other_max_bytes, peak->lazy_peak_bytes, peak->slack_bytes);
    settle(peak);
}

bool peak_is_known(const struct peak *peak)
{
    /* Every program has some memory, so a peak of 0 was not measured. */
    return peak->peak_bytes > (peak->count > 1 ? 0 : peak->slack_bytes);
}

void peak_check(const struct peak *peak)
{
    assert(peak->less_lazy_bytes <= peak->peak_bytes);
    assert(peak->lazy_peak_bytes <= peak->peak_bytes);
}
