/* free_map.h - finds the lowest place where free slices lie side by side, also across chunk
 * borders.
 *
 * First fit in address order wastes about as little as best fit (Wilson et al., IWMM 1995), and the
 * memory that goes back to the machine then lies at high addresses.
 *
 * The map knows for each chunk how many slices are free at its start and at its end, and an upper
 * bound of its longest free run. For each group of 64 chunks it knows an upper bound of the longest
 * free run within the group, so that a search skips groups without room. (The summaries of Go's
 * page allocator, go.dev/issue/35112, have more levels and are always exact.) A search that finds
 * nothing in a group computes the group's bound anew from its chunks. A chunk that gets more free
 * slices makes the bound of its group unknown.
 *
 * The caller of every function holds the page heap's lock. Between calls, always:
 *
 *     chunks[c].at_start, chunks[c].at_end are exact
 *     chunks[c].longest >= length of the longest free run within chunk c
 *     bounds[g] >= length of the longest free run within group g
 *     no slice of a chunk from `end` on is free
 */
#ifndef CAIRN_ALLOC_FREE_MAP_H
#define CAIRN_ALLOC_FREE_MAP_H

#include "alloc/region.h"

enum {
    FREE_MAP_CHUNKS = REGION_SLICES_MAX / CHUNK_SLICES,
    FREE_MAP_NONE = FREE_MAP_CHUNKS,
    FREE_MAP_GROUP = 64,
    FREE_MAP_UNKNOWN = UINT16_MAX,
};
_Static_assert(FREE_MAP_GROUP *CHUNK_SLICES < FREE_MAP_UNKNOWN,
               "the longest run of a group is not FREE_MAP_UNKNOWN");

/* Numbers of free slices of a chunk. If all slices are free, all three are CHUNK_SLICES. */
struct free_slices {
    uint8_t at_start;
    uint8_t longest; /* upper bound of the longest free run */
    uint8_t at_end;
    uint8_t unused;
};

struct free_map {
    size_t end; /* number of chunks */

    /* 512 KiB, of which one OS page is touched for every 2 GiB of the region. */
    struct free_slices chunks[FREE_MAP_CHUNKS];

    /* Upper bounds of the longest free runs of the groups. */
    uint16_t bounds[FREE_MAP_CHUNKS / FREE_MAP_GROUP];
};
extern struct free_map free_map __attribute__((visibility("hidden")));

/* Sets the number of chunks. No slice of a new chunk is free yet. */
static inline void free_map_grow(size_t end)
{
    free_map.end = end;
}

/* Records the free slices of a chunk that has at most as many free slices as before. */
static inline void free_map_take(size_t chunk, struct free_slices left)
{
    free_map.chunks[chunk] = left;
}

/* Records the free slices of a chunk that may have more free slices than before. */
static inline void free_map_put(size_t chunk, struct free_slices now)
{
    free_map.chunks[chunk] = now;
    free_map.bounds[chunk / FREE_MAP_GROUP] = FREE_MAP_UNKNOWN;
}

/* Returns the chunk in which the lowest run of `slices` free slices begins, or FREE_MAP_NONE. If
 * `longest` of that chunk is at least `slices`, the run should lie within the chunk; the caller
 * must check, because the bound may be too high. Else the run begins in the free slices at the
 * chunk's end. */
size_t free_map_find(size_t slices);

/* Returns the lowest chunk that is entirely free, or FREE_MAP_NONE. */
size_t free_map_find_empty(void);

/* Returns the number of free slices side by side at the end of the last chunk. */
size_t free_map_at_end(void);

/* Asserts the contract. */
void free_map_check(void);

#endif
