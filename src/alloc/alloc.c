#include "alloc/alloc.h"

#include "alloc/background.h"
#include "alloc/broken.h"
#include "alloc/large.h"

#include <string.h>

/* --- allocating -------------------------------------------------------------------------------------------------- */

static bool has_heap(void)
{
    return thread_heap != &heap_none && thread_heap != &heap_gone;
}

/* Of the page heap; where that has nothing more, what waits for somebody, here or elsewhere, may do. */
static void *allocate_large(size_t size, size_t alignment, bool *zero)
{
    void *p = large_allocate(size, alignment, zero);
    if (UNLIKELY(p == NULL)) {
        if (has_heap())
            heap_collect(thread_heap);
        heap_sweep();
        p = large_allocate(size, alignment, zero);
    }
    background_look();
    return p;
}

/* Above SIZE_CLASS_BYTES_MAX: a run that the thread kept. NULL: it kept none that fits. */
static inline void *reuse_large(size_t size)
{
    size_t slices = large_slices(size); /* 0 where the sum overflows */
    if (UNLIKELY(slices - 1 >= RUN_CACHE_RUN_MAX))
        return NULL;
    struct slab *run = run_cache_take(&thread_heap->runs, slices); /* of those without a thread it is empty */
    if (UNLIKELY(run == NULL))
        return NULL;
    atomic_store_explicit(&run->kind, RUN_LARGE, memory_order_release);
    return slab_start(run);
}

void *alloc_malloc_slow(size_t size)
{
    bool zero;
    if (size > SIZE_CLASS_BYTES_MAX) {
        void *p = reuse_large(size);
        return LIKELY(p != NULL) ? p : allocate_large(size, 1, &zero);
    }
    struct heap *heap = thread_heap;
    unsigned class = size_class(size);
    if (LIKELY(heap->list[class] != NULL || heap_steal(heap, class)))
        return heap_pop_checked(heap, class);
    if (UNLIKELY(heap == &heap_none || heap == &heap_gone)) {
        heap = thread_birth();
        if (heap == NULL)
            return thread_late(size);
        if (heap->list[class] != NULL) /* thread_birth() may have allocated */
            return heap_pop_checked(heap, class);
    }
    void *block = heap_refill(heap, class);
    background_look();
    return block;
}

void *alloc_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    if (bytes > SIZE_CLASS_BYTES_MAX) {
        bool zero = false;
        void *p = reuse_large(bytes);
        if (p == NULL)
            p = allocate_large(bytes, 1, &zero);
        if (p != NULL && !zero)
            memset(p, 0, bytes);
        return p;
    }
    void *p = alloc_malloc(bytes);
    if (LIKELY(p != NULL))
        memset(p, 0, bytes);
    return p;
}

void *alloc_aligned(size_t alignment, size_t size)
{
    if (alignment <= 16)
        return alloc_malloc(size);
    unsigned class = size_class_aligned(size, alignment);
    if (class < SIZE_CLASS_COUNT)
        return alloc_malloc(size_class_bytes(class));
    bool zero;
    return allocate_large(size, alignment, &zero);
}

/* --- freeing ----------------------------------------------------------------------------------------------------- */

/* The record of the run that `p` lies in, which is in use; anything else is the end of the program. */
static struct slab *run_of(const void *p)
{
    size_t index = region_index(p);
    if (!region_has(index))
        broken("a pointer that did not come from here", p);
    struct slab *slab = slab_at(index);
    if (slab->kind == RUN_TAIL)
        slab -= slab->back;
    if (slab->kind == RUN_LARGE) {
        if (p != slab_start(slab))
            broken("a pointer into the middle of a large block", p);
    } else if (slab->kind != RUN_SLAB) {
        broken("a pointer to nothing that is in use: freed before, or never allocated", p);
    } else if (!slab_has_block(slab, p)) {
        broken("a pointer that is not the start of a block", p);
    }
    return slab;
}

static void free_large(struct slab *slab)
{
    struct heap *keeper = atomic_load_explicit(&slab->owner, memory_order_acquire);
    if (UNLIKELY(keeper != NULL))
        heap_drop_large(keeper, slab);
    if (LIKELY(run_cache_put(&thread_heap->runs, slab))) /* never of those without a thread */
        return;
    background_look();
    if (LIKELY(has_heap()) || thread_birth() != NULL)
        heap_free_large(thread_heap, slab);
    else
        large_free(slab);
}

/* NULL, and what is wrong. */
static __attribute__((noinline)) void free_rest(void *p)
{
    if (p == NULL)
        return;
    struct slab *slab = run_of(p);
    if (slab->kind == RUN_LARGE) /* since a moment ago */
        free_large(slab);
    else
        broken("a block is freed twice", p);
}

/* A small block of another thread, or, from behind the first slice of its slab, of the thread's own; `slab` is the record of
 * the slice that it begins in. */
static __attribute__((noinline)) void free_small(struct slab *slab, void *p)
{
    struct block *block = p;
    size_t offset = (uintptr_t)p % SLICE_BYTES;
    if (slab->kind == RUN_TAIL) {
        offset += (size_t)slab->back << SLICE_SHIFT;
        slab -= slab->back;
    }
    uintptr_t last = slab_key(block, NULL);
    if (UNLIKELY(slab->kind != RUN_SLAB || !slab_begins(slab, (uint32_t)offset) ||
                 slab_is_marked_by(block, last)))
        free_rest(p);
    else if (atomic_load_explicit(&slab->owner, memory_order_relaxed) == thread_heap)
        heap_free(thread_heap, slab, block, last);
    else if (UNLIKELY(!remote_post_quick(slab, block, offset, last)))
        heap_post(slab, block);
}

void alloc_free_slow(void *p)
{
    size_t index = region_index(p);
    if (UNLIKELY(!region_has(index))) {
        free_rest(p);
        return;
    }
    struct slab *slab = slab_at(index);
    if (slab->kind == RUN_LARGE && (uintptr_t)p % SLICE_BYTES == 0)
        free_large(slab);
    else
        free_small(slab, p);
}

/* --- resizing ---------------------------------------------------------------------------------------------------- */

static size_t usable(struct slab *slab)
{
    return slab->kind == RUN_LARGE ? large_bytes(slab) : size_class_bytes(slab->class);
}

size_t alloc_usable_size(const void *p)
{
    return p == NULL ? 0 : usable(run_of(p));
}

static bool resize(struct slab *slab, void *p, size_t size)
{
    if (slab->kind == RUN_LARGE)
        return size > SIZE_CLASS_BYTES_MAX && large_resize(slab, size);
    const struct block *block = p;
    if (UNLIKELY(slab_is_marked(block)))
        broken("a block is resized that was freed before", p);
    size_t have = usable(slab);
    return size <= have && (size > have / 2 || have <= 32);
}

bool alloc_resize(void *p, size_t size)
{
    return resize(run_of(p), p, size);
}

void *alloc_realloc(void *p, size_t size)
{
    if (p == NULL)
        return alloc_malloc(size);
    struct slab *slab = run_of(p);
    if (resize(slab, p, size))
        return p;
    size_t have = usable(slab);
    bool grows = slab->kind == RUN_LARGE && size > have;
    if (grows && atomic_load_explicit(&slab->owner, memory_order_relaxed) == NULL) {
        void *there = large_move(slab, size);
        background_look();
        if (there != NULL)
            return there;
    }
    void *moved = grows ? large_allocate_to_grow(size) : NULL;
    background_look();
    if (moved == NULL)
        moved = alloc_malloc(size);
    if (moved == NULL)
        return size <= have ? p : NULL; /* what shrinks need not fail */
    memcpy(moved, p, size < have ? size : have);
    alloc_free(p);
    return moved;
}
