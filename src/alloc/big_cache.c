#include "alloc/big_cache.h"

#include "alloc/broken.h"
#include "alloc/guarded_run.h"

#include <string.h>

enum {
    SLACK_SHIFT = 2, /* a run may be longer than requested by a quarter */
    DEPTHS = 256,    /* numbers of stack depths, in units of 16 bytes */
    RING_BITS = 6,   /* the upper bits of a place select its ring */
};
_Static_assert(BIG_CACHE_RINGS == 1 << RING_BITS, "each value of these bits has a ring");

bool big_cache_on;

void big_cache_begin(void)
{
    big_cache_on = true;
}

struct big_cache *big_cache_new(void)
{
    bool zero;
    _Static_assert(sizeof(struct big_cache) <= SLICE_BYTES, "a cache has one slice");
    size_t index = guarded_run_for_us(1, &zero);
    if (index == 0)
        return NULL;
    atomic_store_explicit(&slab_at(index)->kind, RUN_OWN, memory_order_relaxed);
    if (!zero)
        memset(region_address(index), 0, sizeof(struct big_cache));
    return region_address(index);
}

uint32_t big_cache_place(const void *caller, const void *frame)
{
    uint64_t depth = (uintptr_t)frame / 16 % DEPTHS;
    uint64_t mixed = ((uintptr_t)caller ^ depth << 48) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(mixed >> 32) | 1;
}

static struct big_cache_ring *ring_of(struct big_cache *cache, uint32_t place)
{
    return &cache->rings[place >> (32 - RING_BITS)];
}

/* Takes run number `at` off the ring. */
static struct slab *take(struct big_cache *cache, struct big_cache_ring *ring, unsigned at)
{
    struct slab *run = slab_at(ring->runs[at]);
    for (; at + 1 < BIG_CACHE_RUNS; at++)
        ring->runs[at] = ring->runs[at + 1];
    ring->runs[BIG_CACHE_RUNS - 1] = 0;
    cache->slices -= run->slices;
    return run;
}

static struct slab *take_oldest(struct big_cache *cache, struct big_cache_ring *ring)
{
    for (unsigned at = BIG_CACHE_RUNS; at-- > 0;)
        if (ring->runs[at] != 0)
            return take(cache, ring, at);
    return NULL;
}

struct slab *big_cache_take(struct big_cache *cache, uint32_t place, size_t slices)
{
    struct big_cache_ring *ring = ring_of(cache, place);
    unsigned best = BIG_CACHE_RUNS;
    size_t too_long = slices + (slices >> SLACK_SHIFT) + 1;
    if (ring->place != place)
        return NULL;
    for (unsigned at = 0; at < BIG_CACHE_RUNS && ring->runs[at] != 0; at++) {
        size_t have = slab_at(ring->runs[at])->slices;
        if (have >= slices && have < too_long) {
            too_long = have;
            best = at;
        }
    }
    return best == BIG_CACHE_RUNS ? NULL : take(cache, ring, best);
}

struct slab *big_cache_evict(struct big_cache *cache)
{
    for (unsigned tried = 0; tried < BIG_CACHE_RINGS; tried++) {
        struct slab *run = take_oldest(cache, &cache->rings[cache->hand]);
        cache->hand = (cache->hand + 1) % BIG_CACHE_RINGS;
        if (run != NULL)
            return run;
    }
    return NULL;
}

void big_cache_put(struct big_cache *cache, struct slab *run, uint32_t most,
                   void (*forget)(struct slab *run))
{
    struct big_cache_ring *ring = ring_of(cache, run->place);
    struct slab *other;
    bool fits = run->slices <= most;
    uint32_t room = fits ? most - run->slices : most; /* for the other runs */
    if (fits && ring->place != run->place)
        while ((other = take_oldest(cache, ring)) != NULL)
            forget(other);
    if (fits && ring->runs[BIG_CACHE_RUNS - 1] != 0)
        forget(take_oldest(cache, ring));
    while (cache->slices > room && (other = big_cache_evict(cache)) != NULL)
        forget(other);
    if (!fits) {
        forget(run);
        return;
    }
    ring->place = run->place;
    memmove(&ring->runs[1], &ring->runs[0], sizeof ring->runs - sizeof ring->runs[0]);
    ring->runs[0] = (uint32_t)slab_index(run);
    cache->slices += run->slices;
    atomic_store_explicit(&run->kind, RUN_CACHED, memory_order_relaxed);
}

void big_cache_check(const struct big_cache *cache)
{
    uint32_t slices = 0;
    for (unsigned i = 0; i < BIG_CACHE_RINGS; i++) {
        const uint32_t *runs = cache->rings[i].runs;
        for (unsigned at = 0; at < BIG_CACHE_RUNS; at++) {
            CHECK_THAT(at == 0 || runs[at] == 0 || runs[at - 1] != 0);
            if (runs[at] == 0)
                continue;
            CHECK_THAT(slab_at(runs[at])->kind == RUN_CACHED);
            CHECK_THAT(cache->rings[i].place != 0);
            slices += slab_at(runs[at])->slices;
        }
    }
    CHECK_THAT(slices == cache->slices);
}
