/* page_heap_dense.c - finds the dense chunks of page_heap.h, and marks the chunks that become huge
 * pages. */
#include "alloc/page_heap.h"

#include "alloc/chunk.h"
#include "alloc/huge_page_timing.h"
#include "alloc/huge_page_unasked.h"

enum {
    DENSE_LOOKS = 2,       /* chunk.dense of a chunk that may become a huge page */
    COLLAPSED = UINT8_MAX, /* chunk.dense of a chunk taken to become a huge page */
    TOLD_MOST = 5,         /* doublings of the required number of reuses: 4 to 128 */
};

/* Returns whether a chunk is dense: it is in use, and as far as is known all its pages are
 * resident. */
static bool is_dense(const struct chunk *chunk)
{
    return chunk_may_collapse(chunk) && !chunk->inside && chunk->used_count > 0 &&
           bitmap_load(&chunk->dirty) == ~(bitmap_wide)0;
}

void page_heap_look(void)
{
    page_heap_lock();
    for (size_t number = 1; number < chunk_end() && huge_page_wanted() != HUGE_PAGE_NEVER;
         number++) {
        struct chunk *chunk = chunk_of(number);
        if (chunk->dense == COLLAPSED)
            continue;
        if (!is_dense(chunk) || !page_heap_is_large())
            chunk->dense = 0;
        else if (chunk->dense < DENSE_LOOKS)
            chunk->dense++;
    }
    page_heap_unlock();
}

void *page_heap_take_dense(size_t *from)
{
    void *start = NULL;
    size_t number = *from > 0 ? *from : 1;
    page_heap_lock();
    for (; number < chunk_end() && start == NULL; number++) {
        struct chunk *chunk = chunk_of(number);
        if (chunk->dense != DENSE_LOOKS || !is_dense(chunk))
            continue;
        chunk->dense = COLLAPSED;
        start = region_address(number * CHUNK_SLICES);
    }
    page_heap_unlock();
    *from = number;
    return start;
}

bool page_heap_take_reused(void *start)
{
    struct chunk *chunk = chunk_of(region_index(start) / CHUNK_SLICES);
    page_heap_lock();
    bool taken = chunk->dense != COLLAPSED && huge_page_wanted() != HUGE_PAGE_NEVER;
    if (taken)
        chunk->dense = COLLAPSED;
    chunk->reused = 0;
    if (chunk->told < TOLD_MOST)
        chunk->told++;
    page_heap_unlock();
    return taken;
}

bool page_heap_allow_huge(void *start)
{
    size_t index = region_index(start);
    page_heap_lock();
    bool allowed = chunk_of(index / CHUNK_SLICES)->forbidden;
    if (allowed)
        huge_page_unasked_allow(index, CHUNK_SLICES);
    page_heap_unlock();
    return allowed;
}

void page_heap_put_dense(void *start, bool allowed)
{
    size_t index = region_index(start);
    page_heap_lock();
    chunk_of(index / CHUNK_SLICES)->dense = 0;
    if (allowed)
        huge_page_unasked_forbid(index, CHUNK_SLICES);
    page_heap_unlock();
}
