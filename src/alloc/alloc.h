/* alloc.h - allocate, free, resize: what the names that the world expects come down to.
 *
 * The fast paths stand here, so that every name of abi/ is one without a further call; they read straight down, and all
 * that is rare leaves through a cold door. NULL is the answer to a size that overflows or that the machine refuses, and
 * errno is not touched here: abi/ knows what the standards ask for. Any thread may call anything, also with blocks of
 * another. Every block is aligned to 16 bytes.
 *
 * `caller` is where the program called from, by the return address of the name; NULL: not known. It is looked at where a
 * large block is made, and sites are counted (site.h).
 */
#ifndef CAIRN_ALLOC_ALLOC_H
#define CAIRN_ALLOC_ALLOC_H

#include "alloc/large.h"
#include "alloc/thread.h"

#include <string.h>

/* What is not done at once: a list that is empty or was written to, and large sizes of which the thread kept no run. */
void *alloc_malloc_slow(size_t size, const void *caller) __attribute__((noinline));

/* NULL, and what is no block at all. */
void alloc_free_slow(void *p) __attribute__((noinline));

/* Large blocks, other threads' blocks, and what is no block; `slab` is the record of the slice that `p` lies in. */
void alloc_free_other(void *p, struct slab *slab) __attribute__((noinline));

/* From now on large blocks are counted by their sites. False: the machine refuses a table. Before the program has a second
 * thread. */
bool alloc_count_sites(void);

/* Above SIZE_CLASS_BYTES_MAX: a run that the thread kept, for a block that no site counts. NULL: it kept none that fits, or
 * it is the heap's turn (site.h). */
static inline void *alloc_reuse_large(size_t size)
{
    struct heap *heap = thread_heap;
    size_t slices = large_slices(size); /* 0 where the sum overflows */
    if (UNLIKELY(slices - 1 >= RUN_CACHE_RUN_MAX ||
                 heap->site_turn.left == 0)) /* also where there is no thread */
        return NULL;
    uint32_t index = run_cache_take(&heap->runs, (uint32_t)slices);
    if (UNLIKELY(index == 0))
        return NULL;
    heap->site_turn.left--;
    atomic_store_explicit(&slab_at(index)->kind, RUN_LARGE, memory_order_release);
    void *p = region_address(index);
    ASSUME(p != NULL);
    return p;
}

/* NULL: ask alloc_malloc_slow(). Two steps, so that a name of abi/ can end in its own cold door, by a jump. */
static inline __attribute__((always_inline)) void *alloc_malloc_quick(size_t size)
{
    if (UNLIKELY(size > SIZE_CLASS_BYTES_MAX))
        return alloc_reuse_large(size);
    struct heap *heap = thread_heap;
    unsigned class = size_class(size);
    struct block *block = heap->list[class];
    return LIKELY(block != NULL && slab_is_marked(block)) ? heap_pop(heap, class, block) : NULL;
}

/* A size of 0 is one of 1. */
static inline void *alloc_malloc(size_t size)
{
    void *p = alloc_malloc_quick(size);
    return LIKELY(p != NULL) ? p : alloc_malloc_slow(size, NULL);
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
        alloc_free_other(p, slab);
}

/* count × size bytes, all zero. In two steps as well. */
void *alloc_calloc_slow(size_t count, size_t size, const void *caller) __attribute__((noinline));

static inline void *alloc_calloc_quick(size_t count, size_t size)
{
    size_t bytes;
    if (UNLIKELY(__builtin_mul_overflow(count, size, &bytes)))
        return NULL;
    void *p = alloc_malloc_quick(bytes);
    if (LIKELY(p != NULL))
        memset(p, 0, bytes);
    return p;
}

static inline void *alloc_calloc(size_t count, size_t size)
{
    void *p = alloc_calloc_quick(count, size);
    return LIKELY(p != NULL) ? p : alloc_calloc_slow(count, size, NULL);
}

/* `alignment` is a power of two. The first of a list; NULL: ask the second, which is complete by itself. */
void *alloc_aligned_quick(size_t alignment, size_t size);
void *alloc_aligned_slow(size_t alignment, size_t size, const void *caller);

static inline void *alloc_aligned(size_t alignment, size_t size)
{
    return alloc_aligned_slow(alignment, size, NULL);
}

/* Like ISO C's; a size of 0 is one of 1. What fails leaves `p` as it was. The one is for sizes of up to
 * SIZE_CLASS_BYTES_MAX, the other for those above. */
void *alloc_realloc_small(void *p, size_t size);
void *alloc_realloc_large(void *p, size_t size, const void *caller);

static inline void *alloc_realloc(void *p, size_t size)
{
    return size <= SIZE_CLASS_BYTES_MAX ? alloc_realloc_small(p, size)
                                        : alloc_realloc_large(p, size, NULL);
}

/* Makes a block hold `size` bytes where it is; false: it stays as it was. */
bool alloc_resize(void *p, size_t size);

/* Bytes that may be used; stable as long as the block lives. 0 for NULL. */
size_t alloc_usable_size(const void *p);

#endif
