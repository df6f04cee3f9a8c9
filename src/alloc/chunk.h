/* chunk.h - the records of chunks, and a search for the chunk in which a short run fits best.
 *
 * A chunk has 128 slices, with one bit per slice in each of its maps. Partly used chunks are on
 * lists. There is one list for each pair of a length, which is that of the chunk's longest free
 * run, and a density: less than 25 % of the slices in use, 25 to 50 %, and so on. A short run goes
 * to a chunk whose longest free run is the shortest that fits. If there are several, the run goes
 * to one of the most densely used, so that sparsely used chunks become empty.
 *
 * A chunk that has changed is put on its list only when the next search begins, because a program
 * that requests only long runs never needs the lists. Until then, free_map.h holds an upper bound
 * of the chunk's longest free run. The bound assumes that all free slices which are neither at the
 * start nor at the end lie side by side.
 *
 * The caller of every function holds the page heap's lock. Between calls, always:
 *
 *     used_count == number of bits set in `used`
 *     a partly used chunk is on the list of changed chunks, or on the list where it belongs
 *     free_map.h agrees with `used`; of a chunk that region_grow() skipped, no slice is free
 */
#ifndef CAIRN_ALLOC_CHUNK_H
#define CAIRN_ALLOC_CHUNK_H

#include "alloc/free_map.h"
#include "base/bitmap.h"

/* The record of a chunk that region_grow() skipped is never written: its slices are neither used
 * nor free. */
struct chunk {
    _Alignas(RECORD_BYTES) struct bitmap used;
    struct bitmap dirty; /* slices that may have been touched: page_heap.h */
    uint8_t huge;        /* the last advice to the kernel: huge pages */
    uint8_t small;       /* the last advice to the kernel: small pages */
    uint8_t forbidden;   /* advised at the growth of the region: small pages */
    uint8_t inside;      /* its first slice belongs to a run from an earlier chunk */
    uint16_t used_count; /* bits set in `used` */
    uint16_t list;       /* see chunk.c; 0: on no list */
    uint32_t next;       /* next chunk on the list, or CHUNK_NONE */
    uint32_t prev;

    /* Number of calls of page_heap_look() in a row that found the chunk dense, or COLLAPSED
     * (page_heap_dense.c). */
    uint8_t dense;

    /* Reuses: times that one run took the whole chunk while all its slices were dirty. The number
     * stops at UINT8_MAX. page_heap_take_reused() sets it to 0. */
    uint8_t reused;

    /* Calls of page_heap_take_reused() for the chunk. Each call doubles the number of reuses after
     * which page_heap_find_reused() returns the chunk again. */
    uint8_t told;

    /* Part of the chunk was offered to the kernel (os_offer()). A slice that is not dirty may then
     * be resident and still hold its old content. */
    uint8_t offered;
};
_Static_assert(sizeof(struct chunk) == RECORD_BYTES, "one cache line");

#define CHUNK_NONE UINT32_MAX

static inline struct chunk *chunk_of(size_t number)
{
    return region_chunk_record(number);
}

/* Returns the number of chunks below the end of the region. */
static inline size_t chunk_end(void)
{
    return atomic_load_explicit(&region.slices, memory_order_relaxed) / CHUNK_SLICES;
}

/* Called after slices of the chunk became used, when `used` and `used_count` have already
 * changed. */
void chunk_took(size_t number);

/* Called after slices of the chunk became free, when `used` and `used_count` have already
 * changed. */
void chunk_gave(size_t number);

/* chunk_took_all() is like chunk_took(), for a chunk whose slices all became used at once.
 * chunk_gave_all() is like chunk_gave(), for a chunk whose slices all became free at once. */
static inline void chunk_took_all(size_t number)
{
    free_map_take(number, (struct free_slices){0});
}

static inline void chunk_gave_all(size_t number)
{
    free_map_put(number, (struct free_slices){CHUNK_SLICES, CHUNK_SLICES, CHUNK_SLICES, 0});
}

/* Returns the length of the longest free run in a chunk, and stores it in free_map.h in place of
 * the upper bound. */
unsigned chunk_exactly(size_t number);

/* Best fit: among the partly used chunks whose longest free run has at least `slices` slices,
 * returns the one in which this run is the shortest. If there are several, returns one of the most
 * densely used. Returns CHUNK_NONE if there is none. */
size_t chunk_find(size_t slices);

/* Removes from a set of slices those that do not fill a whole OS page, and returns the rest. An OS
 * page may be larger than a slice. The kernel can only take back whole pages, and must not get a
 * page of which another slice is in use. */
bitmap_wide chunk_whole_pages(bitmap_wide slices);

/* Returns whether a chunk may be collapsed into a huge page: it has requested neither a huge page
 * nor small pages since it was begun. The advice of huge_page_unasked.h does not count. */
static inline bool chunk_may_collapse(const struct chunk *chunk)
{
    return !chunk->huge && !chunk->small;
}

/* Asks the kernel to give a chunk small pages only. */
void chunk_want_small(size_t number);

/* Asserts the contract of one chunk. */
void chunk_check(size_t number);

#endif
