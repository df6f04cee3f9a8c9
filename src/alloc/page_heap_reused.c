/* page_heap_reused.c - counts and finds the reused chunks of page_heap.h. */
#include "alloc/page_heap.h"

#include "alloc/chunk.h"

enum { REUSES = 4 }; /* reuses of a chunk before it is first found */

void *page_heap_find_reused(size_t index, size_t slices)
{
    size_t end = (index + slices) / CHUNK_SLICES;
    for (size_t number = (index + CHUNK_SLICES - 1) / CHUNK_SLICES; number < end; number++) {
        const struct chunk *chunk = chunk_of(number);
        if (UNLIKELY(chunk->reused >= REUSES << chunk->told) && chunk_may_collapse(chunk))
            return region_address(number * CHUNK_SLICES);
    }
    return NULL;
}

/* Writes `reused` without the lock: no other thread writes it while the whole chunk belongs to the
 * caller. */
void page_heap_count_reuse(size_t index, size_t slices)
{
    size_t end = (index + slices) / CHUNK_SLICES;
    for (size_t number = (index + CHUNK_SLICES - 1) / CHUNK_SLICES; number < end; number++)
        chunk_of(number)->reused =
            (uint8_t)(chunk_of(number)->reused + (chunk_of(number)->reused < UINT8_MAX));
}
