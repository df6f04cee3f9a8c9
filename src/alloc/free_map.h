/* free_map.h - where free slices lie side by side: the lowest place that fits, also across the borders of chunks.
 *
 * First fit in the order of addresses wastes about as little as best fit (Wilson et al., IWMM 1995), and what goes back to the
 * machine lies high.
 *
 * Of each chunk it knows how many slices are free at its start and at its end, and a bound of how many are side by side; of 64 chunks
 * another, so that those without room are passed by. (The summaries of Go's page allocator, go.dev/issue/35112, have more levels, and
 * are always exact.) A search in vain lowers that of the 64, and a chunk that has more free than before makes it unknown.
 *
 * Everything is under the page heap's lock.
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
_Static_assert(FREE_MAP_GROUP *CHUNK_SLICES < FREE_MAP_UNKNOWN, "a bound");

/* So many slices of a chunk are free. Where all are, all three are CHUNK_SLICES. */
struct free_slices {
    uint8_t at_start;
    uint8_t longest; /* no run within the chunk is longer */
    uint8_t at_end;
    uint8_t unused;
};

struct free_map {
    struct free_slices
        chunks[FREE_MAP_CHUNKS]; /* 512 KiB, of which a page is touched for every 2 GiB */
    uint16_t bounds[FREE_MAP_CHUNKS / FREE_MAP_GROUP]; /* no run within the group is longer */
    size_t end;                                        /* chunks */
};
extern struct free_map free_map __attribute__((visibility("hidden")));

/* There are so many chunks now; of new ones no slice is free. */
static inline void free_map_grow(size_t end)
{
    free_map.end = end;
}

/* What is free of a chunk is less than before, or nothing else. */
static inline void free_map_take(size_t chunk, struct free_slices left)
{
    free_map.chunks[chunk] = left;
}

/* The same where it is more. */
static inline void free_map_put(size_t chunk, struct free_slices now)
{
    free_map.chunks[chunk] = now;
    free_map.bounds[chunk / FREE_MAP_GROUP] = FREE_MAP_UNKNOWN;
}

/* The chunk that the lowest run of `slices` free ones, 1 or more, begins in: inside of it, where its bound is no less, and if that
 * holds; or else at its end. FREE_MAP_NONE: there is none. */
size_t free_map_find(size_t slices);

/* The lowest chunk all of which is free, or FREE_MAP_NONE. */
size_t free_map_find_empty(void);

/* So many slices are free side by side at the end of the last chunk. */
size_t free_map_at_end(void);

/* Asserts the contract. */
void free_map_check(void);

#endif
