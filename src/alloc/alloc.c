#include "alloc/alloc.h"

#include "alloc/background.h"
#include "alloc/broken.h"
#include "alloc/large.h"
#include "alloc/site.h"

#include <string.h>

/* --- allocating -------------------------------------------------------------------------------------------------- */

static bool has_heap(void)
{
    return thread_heap != &heap_none && thread_heap != &heap_gone;
}

/* Of the page heap; where that has nothing more, what waits for somebody, here or elsewhere, may do. */
static void *allocate_new(size_t size, size_t alignment, bool *zero)
{
    void *p = large_allocate(size, alignment, zero);
    if (UNLIKELY(p == NULL)) {
        if (has_heap())
            heap_collect(thread_heap);
        heap_sweep();
        p = large_allocate(size, alignment, zero);
    }
    return p;
}

bool alloc_count_sites(void)
{
    if (!site_begin())
        return false;
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next)
        heap->site_turn = (struct site_turn){0};
    return true;
}

/* A large block, or NULL. Its caller's site counts it, where sites are counted and it is its turn. */
static inline void *counted(void *p, size_t size, const void *caller, bool hit)
{
    struct site_turn *turn = has_heap() ? &thread_heap->site_turn : NULL;
    if (LIKELY(!site_is_counted())) {
        if (turn != NULL)
            turn->left = SITE_TURN_LONG;
    } else if (p == NULL) {
        return NULL;
    } else if (turn != NULL && turn->left > 0) {
        turn->left--;
    } else {
        site_take(slab_at(region_index(p)), large_slices(size), caller, hit, turn);
    }
    return p;
}

/* A run that the thread kept, whoever's turn it is. What is aligned gets the long one alone: of others it gained nothing
 * (docs/decisions/0008-large-blocks.md). */
static void *reuse_any(size_t size, size_t alignment)
{
    size_t slices = large_slices(size);
    struct heap *heap = thread_heap; /* of those without a thread all is empty */
    if (slices - 1 >= RUN_CACHE_RUN_MAX)
        return alignment <= SLICE_BYTES ? heap_reuse_long(heap, size) : NULL;
    if (alignment != 1)
        return NULL;
    uint32_t index = run_cache_take(&heap->runs, (uint32_t)slices);
    if (index == 0) {
        if (heap->runs.filled != 0)
            heap->runs.slack_shift = SLACK_QUARTER;
        return NULL;
    }
    atomic_store_explicit(&slab_at(index)->kind, RUN_LARGE, memory_order_release);
    return region_address(index);
}

/* What is to be counted, or was not reused. */
static __attribute__((noinline)) void *allocate_large(size_t size, size_t alignment, bool *zero,
                                                      const void *caller)
{
    void *p = reuse_any(size, alignment);
    bool hit = p != NULL;
    if (hit)
        *zero = false;
    else
        p = allocate_new(size, alignment, zero);
    background_look();
    return counted(p, size, caller, hit);
}

void *alloc_malloc_slow(size_t size, const void *caller)
{
    if (size > SIZE_CLASS_BYTES_MAX) {
        bool zero;
        return allocate_large(size, 1, &zero, caller);
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

void *alloc_calloc_slow(size_t count, size_t size, const void *caller)
{
    size_t bytes;
    bool zero = false;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    void *p = bytes <= SIZE_CLASS_BYTES_MAX ? alloc_malloc(bytes)
                                            : allocate_large(bytes, 1, &zero, caller);
    if (p != NULL && !zero)
        memset(p, 0, bytes);
    return p;
}

void *alloc_aligned_quick(size_t alignment, size_t size)
{
    if (alignment <= 16)
        return alloc_malloc_quick(size);
    unsigned class = size_class_aligned(size, alignment);
    return class < SIZE_CLASS_COUNT ? alloc_malloc_quick(size_class_bytes(class)) : NULL;
}

void *alloc_aligned_slow(size_t alignment, size_t size, const void *caller)
{
    if (alignment <= 16) {
        void *p = alloc_malloc_quick(size);
        return LIKELY(p != NULL) ? p : alloc_malloc_slow(size, caller);
    }
    unsigned class = size_class_aligned(size, alignment);
    if (class < SIZE_CLASS_COUNT)
        return alloc_malloc(size_class_bytes(class));
    bool zero;
    return allocate_large(size, alignment, &zero, caller);
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

/* One that a heap of cairn_heap_create() has, that a site counts, or that is not kept at once. */
static __attribute__((noinline)) void free_large_slowly(struct slab *slab)
{
    struct heap *keeper = atomic_load_explicit(&slab->owner, memory_order_acquire);
    if (UNLIKELY(keeper != NULL)) {
        if (!site_keeps(keeper))
            heap_drop_large(keeper, slab);
        if (site_is_counted())
            site_give_back(slab);
    }
    background_look();
    if (LIKELY(has_heap()) || thread_birth() != NULL)
        heap_free_large(thread_heap, slab);
    else
        large_free(slab);
}

static inline void free_large(struct slab *slab)
{
    struct run_cache *runs = &thread_heap->runs; /* where there is no thread it takes none */
    bool kept = atomic_load_explicit(&slab->owner, memory_order_acquire) == NULL &&
                (run_cache_put(runs, slab) || run_cache_put_long(runs, slab));
    if (UNLIKELY(!kept))
        free_large_slowly(slab);
}

void alloc_free_slow(void *p)
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
static __attribute__((noinline)) void free_small(void *p, struct slab *slab)
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
        alloc_free_slow(p);
    else if (atomic_load_explicit(&slab->owner, memory_order_relaxed) == thread_heap)
        heap_free(thread_heap, slab, block, last);
    else if (UNLIKELY(!remote_post_quick(slab, block, offset, last)))
        heap_post(slab, block);
}

void alloc_free_other(void *p, struct slab *slab)
{
    if (slab->kind == RUN_LARGE && (uintptr_t)p % SLICE_BYTES == 0)
        free_large(slab);
    else
        free_small(p, slab);
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

/* What `p` holds of it, of `have` bytes, is then in `moved`; NULL: there was no room, but what shrinks need not fail. */
static inline __attribute__((always_inline)) void *exchanged(void *p, size_t have, void *moved,
                                                             size_t size)
{
    if (moved == NULL)
        return size <= have ? p : NULL;
    memcpy(moved, p, size < have ? size : have);
    alloc_free(p);
    return moved;
}

void *alloc_realloc_small(void *p, size_t size)
{
    if (p == NULL)
        return alloc_malloc(size);
    struct slab *slab = run_of(p);
    if (resize(slab, p, size))
        return p;
    return exchanged(p, usable(slab), alloc_malloc(size), size);
}

/* What has to move is a new block of the caller's. */
void *alloc_realloc_large(void *p, size_t size, const void *caller)
{
    if (p == NULL)
        return alloc_malloc_slow(size, caller);
    struct slab *slab = run_of(p);
    if (resize(slab, p, size))
        return p;
    size_t have = usable(slab);
    bool grows = slab->kind == RUN_LARGE && size > have;
    const struct heap *owner = atomic_load_explicit(&slab->owner, memory_order_relaxed);
    if (grows && (owner == NULL || site_keeps(owner))) {
        void *there = large_move(slab, size);
        background_look();
        if (there != NULL)
            return counted(there, size, caller, false);
    }
    void *moved = grows ? counted(large_allocate_to_grow(size), size, caller, false) : NULL;
    background_look();
    if (moved == NULL)
        moved = alloc_malloc_slow(size, caller);
    if (UNLIKELY(moved == NULL) && resize(slab, p, size)) /* what was kept is free by now */
        return p;
    return exchanged(p, have, moved, size);
}
