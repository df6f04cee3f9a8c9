/* chunk_map.h - which chunks are empty: a bit for each, and the first that lie side by side.
 *
 * The lowest address that fits is the one that is taken (Wilson et al., IWMM 1995: first fit in the order of addresses wastes as
 * little as best fit). So what a program needs again and again lies low and close together, still in the processor's
 * caches, and what it needs no longer lies high.
 *
 * Always true: no bit is set in a word below `lowest`. Everything is under the page heap's lock.
 */
#ifndef CAIRN_ALLOC_CHUNK_MAP_H
#define CAIRN_ALLOC_CHUNK_MAP_H

#include "alloc/region.h"

enum { CHUNK_MAP_CHUNKS = REGION_SLICES_MAX / CHUNK_SLICES, CHUNK_MAP_NONE = CHUNK_MAP_CHUNKS };

/* `count` chunks from `first` on, 1 or more, are empty now, or no longer. */
void chunk_map_put(size_t first, size_t count);
void chunk_map_take(size_t first, size_t count);

bool chunk_map_has(size_t chunk);

/* The lowest of `count` empty chunks side by side, 1 or more; CHUNK_MAP_NONE: there are none. They stay. */
size_t chunk_map_find(size_t count);

/* Asserts the contract. */
void chunk_map_check(void);

#endif
