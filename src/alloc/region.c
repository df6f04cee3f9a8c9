#include "alloc/region.h"

#include "alloc/broken.h"
#include "base/clock.h"
#include "base/random.h"
#include "os/os.h"

enum {
    PLACES_TRIED = 64,           /* random bases tried in each window */
    SKIPS_MAX = 1024,            /* occupied chunks that one growth skips: 2 GiB */
    PIECE_CHUNKS_MAX = 32,       /* 64 MiB */
    RECORD_STEP_BYTES = 1 << 16, /* a multiple of every OS page size */
};

struct region region;

static size_t slices_max; /* of the window that was chosen */

/* Ends of the mapped records of slices and chunks. */
static uintptr_t slice_records_end;
static uintptr_t chunk_records_end;

/* Addresses from which the base is drawn, and the most slices that the region may have there. The
 * records begin REGION_SLICE_SPAN + REGION_CHUNK_SPAN below the base. */
struct window {
    uintptr_t from;
    uintptr_t to;
    size_t slices;
};

/* One window for each number of bits of a user address. Each lies far above the addresses that brk
 * reaches in a position-independent program, far below the addresses where the kernel places
 * mappings, and within the 16 TiB that valgrind supports. It also avoids the addresses from 4, 8
 * and 16 TiB on, which Java's ZGC uses for heaps of up to 256 GiB. ZGC would lay its heap closely
 * around our region, which then could not grow. */
static const struct window windows[] = {
    /* 47 bits: 12 to 15 TiB. */
    {UINT64_C(0x0c0000000000), UINT64_C(0x0f0000000000), REGION_SLICES_MAX},

    /* 39 bits: 32 to 192 GiB, for a region of at most 16 GiB. */
    {UINT64_C(0x000800000000), UINT64_C(0x003000000000), 1 << 20},
};

/* Maps records from `*end` up to `wanted`. Returns false if the machine refuses; a part may then be
 * mapped, and `*end` says so. */
static bool map_records(uintptr_t *end, uintptr_t wanted)
{
    while (*end < wanted) {
        if (os_claim((void *)*end, RECORD_STEP_BYTES) != OS_CLAIMED)
            return false;
        *end += RECORD_STEP_BYTES;
    }
    return true;
}

/* Maps the records of all slices and chunks below `slices`. Returns false if the machine
 * refuses. */
static bool records_up_to(size_t slices)
{
    uintptr_t slice_records = region.base - REGION_SLICE_SPAN;
    uintptr_t chunk_records = slice_records - REGION_CHUNK_SPAN;
    return map_records(&slice_records_end, slice_records + slices * RECORD_BYTES) &&
           map_records(&chunk_records_end, chunk_records + slices / CHUNK_SLICES * RECORD_BYTES);
}

/* Draws a base in the window and maps its first records. Returns false if it finds no free place in
 * the window. */
static bool place_in(const struct window *window, struct random *random)
{
    uint64_t places = (window->to - window->from) / CHUNK_BYTES;
    for (int i = 0; i < PLACES_TRIED; i++) {
        uintptr_t base = (window->from / CHUNK_BYTES + random_below(random, places)) * CHUNK_BYTES;
        enum os_claimed claimed = os_claim((void *)(base - REGION_SLICE_SPAN), RECORD_STEP_BYTES);
        if (claimed == OS_REFUSED)
            return false; /* no such addresses, or no memory */
        uintptr_t chunk_records = base - REGION_SLICE_SPAN - REGION_CHUNK_SPAN;
        bool both = claimed == OS_CLAIMED &&
                    os_claim((void *)chunk_records, RECORD_STEP_BYTES) == OS_CLAIMED;
        if (!both) {
            if (claimed == OS_CLAIMED)
                os_unmap((void *)(base - REGION_SLICE_SPAN), RECORD_STEP_BYTES);
            /* Another copy of this allocator in the process may draw the same places. */
            random->state ^= clock_now_ns();
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

/* Chooses the base in one of the windows. If that fails, as in emulators with an address space of
 * their own, chooses it below the address at which the kernel places a mapping. Returns false if
 * there is no place. */
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
    size_t piece = end / CHUNK_SLICES; /* doubles the region: 2, 2, 4, 8 … 64 MiB */
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
            /* A smaller piece may succeed, whatever the reason of the refusal was. */
            piece = chunks + (piece - chunks) / 2;
            if (piece - chunks < 1 || claimed == OS_OCCUPIED)
                piece = chunks;
        } else if (claimed == OS_OCCUPIED) {
            /* Skips the chunk forever. Its records stay zero, so no address in it counts as an
             * address of this allocator. */
            end += CHUNK_SLICES;
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
