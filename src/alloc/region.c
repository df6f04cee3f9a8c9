#include "alloc/region.h"

#include "alloc/broken.h"
#include "base/clock.h"
#include "base/random.h"
#include "os/os.h"

enum {
    PLACES_TRIED = 64, /* random bases before giving up: one is free unless the window is crowded */
    SKIPS_MAX = 1024,  /* occupied chunks passed over by one growth: 2 GiB */
    PIECE_CHUNKS_MAX = 32,       /* 64 MiB */
    RECORD_STEP_BYTES = 1 << 16, /* a multiple of every page size there is */
};

struct region region;

static size_t slices_max;
static uintptr_t slice_records_end; /* mapped from base - REGION_SLICE_SPAN up to here */
static uintptr_t chunk_records_end;

/* A window for the base. Records lie up to REGION_SLICE_SPAN + REGION_CHUNK_SPAN below the base. */
struct window {
    uintptr_t from;
    uintptr_t to;
    size_t slices;
};

/* By bits of a user address: far above what brk reaches from a position-independent program, far below where the kernel
 * puts mappings, and within the 16 TiB that valgrind has. Java's ZGC has the first part of 4, 8 and 16 TiB for a heap of up
 * to 256 GiB, and lays it close around what it finds there, which then cannot grow. */
static const struct window windows[] = {
    {UINT64_C(0x0c0000000000), UINT64_C(0x0f0000000000),
     REGION_SLICES_MAX}, /* 47 bits: 12 to 15 TiB */
    {UINT64_C(0x000800000000), UINT64_C(0x003000000000),
     1 << 20}, /* 39 bits: 32 to 192 GiB, of which 16 */
};

/* Extends the mapped records to cover `slices`. What was mapped stays so when it fails. */
static bool map_records(uintptr_t *end, uintptr_t wanted)
{
    while (*end < wanted) {
        if (os_claim((void *)*end, RECORD_STEP_BYTES) != OS_CLAIMED)
            return false;
        *end += RECORD_STEP_BYTES;
    }
    return true;
}

static bool records_up_to(size_t slices)
{
    uintptr_t slice_records = region.base - REGION_SLICE_SPAN;
    uintptr_t chunk_records = slice_records - REGION_CHUNK_SPAN;
    return map_records(&slice_records_end, slice_records + slices * RECORD_BYTES) &&
           map_records(&chunk_records_end, chunk_records + slices / CHUNK_SLICES * RECORD_BYTES);
}

/* Draws a place in the window whose first records are free. */
static bool place_in(const struct window *window, struct random *random)
{
    uint64_t places = (window->to - window->from) / CHUNK_BYTES;
    for (int i = 0; i < PLACES_TRIED; i++) {
        uintptr_t base = (window->from / CHUNK_BYTES + random_below(random, places)) * CHUNK_BYTES;
        enum os_claimed claimed = os_claim((void *)(base - REGION_SLICE_SPAN), RECORD_STEP_BYTES);
        if (claimed == OS_REFUSED)
            return false; /* no such addresses here, or no memory */
        uintptr_t chunk_records = base - REGION_SLICE_SPAN - REGION_CHUNK_SPAN;
        bool both = claimed == OS_CLAIMED &&
                    os_claim((void *)chunk_records, RECORD_STEP_BYTES) == OS_CLAIMED;
        if (!both) {
            if (claimed == OS_CLAIMED)
                os_unmap((void *)(base - REGION_SLICE_SPAN), RECORD_STEP_BYTES);
            random->state ^=
                clock_now_ns(); /* another of us in this process drew the same places */
            continue;
        }
        region.base = base;
        slice_records_end = base - REGION_SLICE_SPAN + RECORD_STEP_BYTES;
        chunk_records_end = chunk_records + RECORD_STEP_BYTES;
        slices_max = window->slices;
        return true;
    }
    return false;
}

/* In one of the windows; else, as in emulators with addresses of their own, below where the kernel puts a mapping. */
static bool place(void)
{
    struct random random = random_of(os_random());
    for (size_t w = 0; w < COUNT_OF(windows); w++)
        if (place_in(&windows[w], &random))
            return true;
    void *probe = os_map(os_page_bytes(), 1, 0);
    if (probe == NULL)
        return false;
    os_unmap(probe, os_page_bytes());
    uintptr_t top = (uintptr_t)probe;
    struct window below = {top / 2, top - top / 4, 1 << 18}; /* 4 GiB */
    return place_in(&below, &random);
}

size_t region_grow(size_t chunks, size_t *got)
{
    *got = 0;
    if (region.base == 0 && !place())
        return 0;
    size_t end = atomic_load_explicit(&region.slices, memory_order_relaxed);
    size_t piece = end / CHUNK_SLICES; /* as much again: 2, 2, 4, 8 … 64 MiB */
    if (piece > PIECE_CHUNKS_MAX)
        piece = PIECE_CHUNKS_MAX;
    if (piece < chunks)
        piece = chunks;
    for (int skipped = 0; skipped <= SKIPS_MAX;) {
        if (chunks > (slices_max - end) / CHUNK_SLICES)
            return 0;
        if (piece > (slices_max - end) / CHUNK_SLICES)
            piece = chunks;
        if (!records_up_to(end + piece * CHUNK_SLICES)) {
            if (piece == chunks)
                return 0;
            piece = chunks;
            continue;
        }
        enum os_claimed claimed = os_claim(region_address(end), piece * CHUNK_BYTES);
        if (claimed == OS_CLAIMED) {
            *got = piece;
            atomic_store_explicit(&region.slices, end + piece * CHUNK_SLICES, memory_order_relaxed);
            return end / CHUNK_SLICES;
        }
        if (piece > chunks) {
            piece = chunks + (piece - chunks) / 2; /* less may be had, whatever the reason */
            if (piece - chunks < 1 || claimed == OS_OCCUPIED)
                piece = chunks;
        } else if (claimed == OS_OCCUPIED) {
            end +=
                CHUNK_SLICES; /* for ever somebody else's: its records stay zero, so nothing in it is ours */
            atomic_store_explicit(&region.slices, end, memory_order_relaxed);
            skipped++;
        } else {
            return 0;
        }
    }
    return 0;
}

size_t region_record_bytes(void)
{
    uintptr_t slice_records = region.base - REGION_SLICE_SPAN;
    return region.base == 0 ? 0
                            : slice_records_end - slice_records +
                                  (chunk_records_end - (slice_records - REGION_CHUNK_SPAN));
}

void region_check(void)
{
    size_t slices = atomic_load_explicit(&region.slices, memory_order_relaxed);
    CHECK_THAT(slices % CHUNK_SLICES == 0 && slices <= slices_max);
    CHECK_THAT(region.base % CHUNK_BYTES == 0);
    CHECK_THAT(slice_records_end >= region.base - REGION_SLICE_SPAN + slices * RECORD_BYTES ||
               slices == 0);
}
