#include "alloc/region.h"

#include "alloc/broken.h"
#include "alloc/hardening.h"
#include "base/clock.h"
#include "base/random.h"
#include "os/os.h"

enum {
    PLACES_TRIED = 64,           /* random bases tried in each window */
    PIECE_CHUNKS_MAX = 32,       /* 64 MiB */
    GAPS_MAX = 64,               /* largest number of gaps that are remembered */
    ALIGNED_PLACES_TRIED = 8,    /* addresses that region_grow_aligned() tries */
    RECORD_STEP_BYTES = 1 << 16, /* a multiple of every OS page size */
};

struct region region;

static size_t slices_max; /* `slices` of the window that was chosen */

/* Slices below the end of the region that region_grow_aligned() left out. Nothing is mapped there
 * except their records, which are zero. `from` == `to` if an entry is unused. */
static struct gap {
    size_t from;
    size_t to;
} gaps[GAPS_MAX];

/* Ends of the mapped records of slices and chunks. */
static uintptr_t slice_records_end;
static uintptr_t chunk_records_end;
static uintptr_t map_end; /* end of the mapped block map; hardened build only */

/* Addresses from which the base is drawn, and the most slices that the region may have there. The
 * records begin REGION_SLICE_SPAN + REGION_CHUNK_SPAN below the base, and the block map of the
 * hardened build REGION_MAP_DISTANCE below it. */
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

    /* 42 bits, as aarch64 has with OS pages of 64 KiB: 1 to 2.5 TiB. */
    {UINT64_C(0x010000000000), UINT64_C(0x028000000000), REGION_SLICES_MAX},

    /* 39 bits: 32 to 192 GiB, for a region of at most 16 GiB. */
    {UINT64_C(0x000800000000), UINT64_C(0x003000000000), 1 << 20},
};

/* Maps records from `*end` up to `wanted`. Returns false if the machine refuses. */
static bool map_records(uintptr_t *end, uintptr_t wanted)
{
    if (*end >= wanted)
        return true;
    size_t bytes = (wanted - *end + RECORD_STEP_BYTES - 1) / RECORD_STEP_BYTES * RECORD_STEP_BYTES;
    if (os_claim((void *)*end, bytes) != OS_CLAIMED)
        return false;
    *end += bytes;
    return true;
}

/* Maps the records of all slices and chunks below `slices`, and their part of the block map.
 * Returns false if the machine refuses. */
static bool records_up_to(size_t slices)
{
    uintptr_t slice_records = region.base - REGION_SLICE_SPAN;
    uintptr_t chunk_records = slice_records - REGION_CHUNK_SPAN;
    uintptr_t map = region.base - REGION_MAP_DISTANCE;
    if (CAIRN_HARDENED && !map_records(&map_end, map + slices * (SLICE_BYTES / REGION_MAP_UNIT)))
        return false;
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
        region.records = base - REGION_SLICE_SPAN;
        slice_records_end = base - REGION_SLICE_SPAN + RECORD_STEP_BYTES;
        chunk_records_end = chunk_records + RECORD_STEP_BYTES;
        map_end = base - REGION_MAP_DISTANCE;
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

/* Maps a piece of the region and its records. The piece is mapped first: if the machine refuses
 * it, no records for it have taken memory. If the machine refuses the records, the piece is
 * unmapped again. */
static enum os_claimed claim(size_t first, size_t slices)
{
    enum os_claimed claimed = os_claim(region_address(first), slices << SLICE_SHIFT);
    if (claimed != OS_CLAIMED || records_up_to(first + slices))
        return claimed;
    os_unmap(region_address(first), slices << SLICE_SHIFT);
    return OS_REFUSED;
}

/* Maps at least `chunks` chunks from slice `*from` on, below slice `to`. Tries `piece` chunks
 * first. Returns the number of the first chunk, and sets `*got` to the number of chunks. Increases
 * `*from` by the slices that were mapped or skipped. If it fails, `*got` stays 0. */
static size_t grow_between(size_t *from, size_t to, size_t piece, size_t chunks, size_t *got)
{
    for (size_t skip = 1;;) {
        if (chunks > (to - *from) / CHUNK_SLICES)
            return 0;
        if (piece > (to - *from) / CHUNK_SLICES)
            piece = chunks;
        enum os_claimed claimed = claim(*from, piece * CHUNK_SLICES);
        if (claimed == OS_CLAIMED) {
            if (CAIRN_HARDENED && *from == 0 && os_page_bytes() <= SLICE_BYTES)
                os_guard(region_address(0), SLICE_BYTES);
            *got = piece;
            *from += piece * CHUNK_SLICES;
            return *from / CHUNK_SLICES - piece;
        }
        if (piece > chunks) {
            /* A smaller piece may succeed, whatever the reason of the refusal was. */
            piece = chunks + (piece - chunks) / 2;
            if (piece - chunks < 1 || claimed == OS_OCCUPIED)
                piece = chunks;
        } else if (claimed == OS_OCCUPIED && records_up_to(*from + skip * CHUNK_SLICES)) {
            /* Skips chunks forever: one, then 2, 4, 8 …, so that a mapping of many gigabytes takes
             * few calls. Their records stay zero, so no address in them counts as an address of
             * this allocator. */
            *from += skip * CHUNK_SLICES;
            size_t left = (to - *from) / CHUNK_SLICES;
            skip = 2 * skip < left / 2 + 1 ? 2 * skip : left / 2 + 1;
        } else {
            return 0;
        }
    }
}

size_t region_grow(size_t chunks, size_t *got)
{
    *got = 0;
    if (region.base == 0 && !place())
        return 0;
    size_t end = atomic_load_explicit(&region.slices, memory_order_relaxed);
    size_t piece = end / CHUNK_SLICES; /* the region doubles: by 2, 2, 4 … 64 MiB */
    if (piece > PIECE_CHUNKS_MAX)
        piece = PIECE_CHUNKS_MAX;
    if (piece < chunks)
        piece = chunks;
    for (struct gap *gap = gaps; gap < gaps + GAPS_MAX; gap++) {
        size_t first = grow_between(&gap->from, gap->to, piece, chunks, got);
        if (*got != 0)
            return first;
    }
    size_t first = grow_between(&end, slices_max, piece, chunks, got);
    atomic_store_explicit(&region.slices, end, memory_order_relaxed);
    return first;
}

/* Remembers a gap, in place of the smallest one if there are too many. */
static void add_gap(size_t from, size_t to)
{
    struct gap *smallest = gaps;
    for (struct gap *gap = gaps; gap < gaps + GAPS_MAX; gap++)
        if (gap->to - gap->from < smallest->to - smallest->from)
            smallest = gap;
    if (to - from > smallest->to - smallest->from)
        *smallest = (struct gap){from, to};
}

size_t region_grow_aligned(size_t chunks, size_t unit)
{
    size_t end = atomic_load_explicit(&region.slices, memory_order_relaxed);
    size_t index = end + (unit - (region.base / SLICE_BYTES + end) % unit) % unit;
    for (int tried = 0; tried < ALIGNED_PLACES_TRIED; tried++, index += unit) {
        if (index >= slices_max || chunks > (slices_max - index) / CHUNK_SLICES)
            return 0;
        enum os_claimed claimed = claim(index, chunks * CHUNK_SLICES);
        if (claimed == OS_REFUSED)
            return 0;
        if (claimed == OS_OCCUPIED)
            continue;
        add_gap(end, index);
        atomic_store_explicit(&region.slices, index + chunks * CHUNK_SLICES, memory_order_relaxed);
        return index;
    }
    return 0;
}

size_t region_record_bytes(void)
{
    uintptr_t slice_records = region.base - REGION_SLICE_SPAN;
    uintptr_t chunk_records = slice_records - REGION_CHUNK_SPAN;
    uintptr_t map = region.base - REGION_MAP_DISTANCE;
    if (region.base == 0)
        return 0;
    return slice_records_end - slice_records + chunk_records_end - chunk_records + map_end - map;
}

void region_check(void)
{
    size_t slices = atomic_load_explicit(&region.slices, memory_order_relaxed);
    CHECK_THAT(slices % CHUNK_SLICES == 0 && slices <= slices_max);
    CHECK_THAT(region.base % CHUNK_BYTES == 0);
    CHECK_THAT(slice_records_end >= region.base - REGION_SLICE_SPAN + slices * RECORD_BYTES ||
               slices == 0);
}
