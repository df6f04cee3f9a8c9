/* alloc.h - allocate, free, resize: what the names that the world expects come down to.
 *
 * The fast paths stand here, so that every name of abi/ is one without a further call; they read straight down, and all
 * that is rare leaves through a cold door. NULL is the answer to a size that overflows or that the machine refuses, and
 * errno is not touched here: abi/ knows what the standards ask for. Any thread may call anything, also with blocks of
 * another. Every block is aligned to 16 bytes.
 */
#ifndef CAIRN_ALLOC_ALLOC_H
#define CAIRN_ALLOC_ALLOC_H

#include "alloc/thread.h"

/* What is not done at once: large sizes, and a list that is empty or was written to. */
void *alloc_malloc_slow(size_t size) __attribute__((noinline));

/* NULL, large blocks, other threads' blocks, and what is no block at all. */
void alloc_free_slow(void *p) __attribute__((noinline));

/* NULL: ask alloc_malloc_slow(). Two steps, so that a name of abi/ can end in its own cold door, by a jump. */
static inline void *alloc_malloc_quick(size_t size)
{
    if (LIKELY(size <= SIZE_CLASS_BYTES_MAX)) {
        struct heap *heap = thread_heap;
        unsigned class = size_class(size);
        struct block *block = heap->list[class];
        if (LIKELY(block != NULL && slab_is_marked(block)))
            return heap_pop(heap, class, block);
    }
    return NULL;
}

/* A size of 0 is one of 1. */
static inline void *alloc_malloc(size_t size)
{
    void *p = alloc_malloc_quick(size);
    return LIKELY(p != NULL) ? p : alloc_malloc_slow(size);
}

/* `p` is NULL, or came from here. Wrong use is one line on stderr and abort(). */
static inline __attribute__((always_inline)) void alloc_free(void *p)
{
    size_t index = region_index(p);
    if (UNLIKELY(!region_has(index))) {
        alloc_free_slow(p);
        return;
    }
    struct heap *heap = thread_heap;
    struct slab *slab = slab_at(index);
    struct block *block =
        p; /* not looked into before it is certain that it is small: a large one may be untouched */
    uintptr_t last = slab_key(block, NULL);
    if (LIKELY(atomic_load_explicit(&slab->owner, memory_order_relaxed) == heap &&
               slab_begins(slab, (uint32_t)(uintptr_t)p & (SLICE_BYTES - 1)) &&
               !slab_is_marked_by(block, last)))
        heap_free(heap, slab, block, last);
    else
        alloc_free_slow(p);
}

/* count × size bytes, all zero. */
void *alloc_calloc(size_t count, size_t size);

/* `alignment` is a power of two. */
void *alloc_aligned(size_t alignment, size_t size);

/* Like ISO C's; a size of 0 is one of 1. What fails leaves `p` as it was. */
void *alloc_realloc(void *p, size_t size);

/* Makes a block hold `size` bytes where it is; false: it stays as it was. */
bool alloc_resize(void *p, size_t size);

/* Bytes that may be used; stable as long as the block lives. 0 for NULL. */
size_t alloc_usable_size(const void *p);

#endif
