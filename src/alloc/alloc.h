/* alloc.h - allocates, frees and resizes blocks. Every public name of abi/ calls these functions.
 *
 * The fast paths are inline functions here, so that each name of abi/ contains its fast path
 * without a further call. A fast path reads straight down, and every rare case leaves through one
 * slow function. Any thread may call any function, also with blocks of another thread. Every block
 * is aligned to 16 bytes. A function that allocates returns NULL if the size overflows or there is
 * no memory. No function here sets errno. abi/ sets it as the standards require.
 *
 * `caller` is the return address of the program's call, or NULL if it is unknown. Only large blocks
 * use it, and only if site_matters (site.h).
 */
#ifndef CAIRN_ALLOC_ALLOC_H
#define CAIRN_ALLOC_ALLOC_H

#include "alloc/large.h"
#include "alloc/thread.h"

#include <string.h>

/* Slow path of alloc_malloc(). It serves a small size if the list of its class is empty, or if the
 * program wrote to the first block on that list after freeing the block. It serves a large size if
 * alloc_reuse_large() returned NULL. */
void *alloc_malloc_slow(size_t size, const void *caller) __attribute__((noinline));

/* Slow path of alloc_free() for NULL, and for pointers to no block. */
void alloc_free_slow(void *p) __attribute__((noinline));

/* Path of alloc_free() for large blocks, for blocks of other threads, and for blocks that begin
 * behind the first slice of their slab. `slab` is the record of the slice that `p` lies in, `heap`
 * is this thread's, and `last` == slab_key(p, NULL). */
void alloc_free_other(void *p, struct slab *slab, struct heap *heap, uintptr_t last)
    __attribute__((noinline));

/* Slow path for large blocks. Tries the runs that the thread kept, and then the page heap. `*zero`
 * is set to true if the whole block reads as zero. */
void *alloc_large(size_t size, size_t alignment, bool *zero, const void *caller)
    __attribute__((noinline));

/* From now on large blocks are counted by their call sites (site.h). Returns false if there is no
 * memory for the table. Called before the program has a second thread. */
bool alloc_count_sites(void);

/* From now on, the free runs of large blocks are kept by the place that allocated them
 * (big_cache.h). Called before the program has a second thread. */
void alloc_keep_by_place(void);

/* From now on, one in `every` small blocks is guarded (guarded_block.h). Called before the program
 * has a second thread. */
void alloc_guard(uint32_t every);

/* Turns a run that the thread kept into a block of `size` bytes, more than SIZE_CLASS_BYTES_MAX,
 * and returns the block. Returns NULL if no kept run fits, or if `site_matters` (site.h). */
static inline void *alloc_reuse_large(size_t size)
{
    struct heap *heap = thread_heap;
    size_t last = (size - 1) >> SLICE_SHIFT; /* number of the last slice */
    if (UNLIKELY(last >= RUN_CACHE_RUN_MAX || site_matters))
        return NULL;
    struct slab *run;
    uint32_t index = run_cache_take(&heap->runs, (uint32_t)last + 1, &run); /* heap_none has none */
    if (UNLIKELY(index == 0))
        return NULL;
    atomic_store_explicit(&run->kind, RUN_LARGE, memory_order_release);
    void *p = region_address(index);
    ASSUME(p != NULL);
    return p;
}

/* Fast path of alloc_malloc(). If it returns NULL, the caller must call alloc_malloc_slow(). The
 * two functions are separate, so that a name of abi/ can end in a jump to a slow path of its
 * own. */
static inline __attribute__((always_inline)) void *alloc_malloc_quick(size_t size)
{
    struct heap *heap = thread_heap;
    unsigned class;
    if (LIKELY(size <= SIZE_CLASS_TABLE_MAX))
        class = heap->class_table[(size + 15) / 16];
    else if (LIKELY(size <= SIZE_CLASS_BYTES_MAX))
        class = size_class_above_table(size);
    else
        return alloc_reuse_large(size);
    struct block *block = heap->list[class];
    return LIKELY(block != NULL && slab_is_marked(block)) ? heap_pop(heap, class, block) : NULL;
}

/* Returns a block of at least `size` bytes, or NULL. A size of 0 counts as 1. */
static inline void *alloc_malloc(size_t size)
{
    void *p = alloc_malloc_quick(size);
    return LIKELY(p != NULL) ? p : alloc_malloc_slow(size, NULL);
}

/* Frees a block. `p` is NULL or a live block. Any other pointer ends the program with one line on
 * stderr and abort(). */
static inline __attribute__((always_inline)) void alloc_free(void *p)
{
    size_t index = region_index(p);
    if (UNLIKELY(!region_has(index))) {
        alloc_free_slow(p);
        return;
    }
    struct heap *heap = thread_heap;
    struct slab *slab = slab_at(index);
    /* The owner is checked first: only a small block has a thread's heap as its owner, and only a
     * small block may be read. Reading an untouched large block would cause a page fault. */
    struct block *block = p;
    uintptr_t last = slab_key(block, NULL);
    if (LIKELY(PEEK(slab->owner) == heap &&
               slab_begins(slab, (uint32_t)(uintptr_t)p & (SLICE_BYTES - 1)) &&
               !slab_is_marked_by(block, last)))
        heap_free(heap, slab, block, last);
    else
        alloc_free_other(p, slab, heap, last);
}

/* These functions return a block of `count` × `size` bytes, all zero. If alloc_calloc_quick()
 * returns NULL, the caller must call alloc_calloc_slow(). */
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

/* These functions return a block at a multiple of `alignment`, a power of two. If
 * alloc_aligned_quick() returns NULL, the caller must call alloc_aligned_slow(). A caller may also
 * call alloc_aligned_slow() without alloc_aligned_quick() before. */
void *alloc_aligned_quick(size_t alignment, size_t size);
void *alloc_aligned_slow(size_t alignment, size_t size, const void *caller);

static inline void *alloc_aligned(size_t alignment, size_t size)
{
    return alloc_aligned_slow(alignment, size, NULL);
}

/* These functions resize a block like realloc() of ISO C. A size of 0 counts as 1. If they fail,
 * they return NULL and leave the block `p` unchanged. alloc_realloc_small() is for sizes up to
 * SIZE_CLASS_BYTES_MAX, alloc_realloc_large() for larger sizes. */
void *alloc_realloc_small(void *p, size_t size);
void *alloc_realloc_large(void *p, size_t size, const void *caller);

static inline void *alloc_realloc(void *p, size_t size)
{
    return size <= SIZE_CLASS_BYTES_MAX ? alloc_realloc_small(p, size)
                                        : alloc_realloc_large(p, size, NULL);
}

/* Resizes a block in place. Returns false if that is impossible; the block stays as it was. */
bool alloc_resize(void *p, size_t size);

/* Returns how many bytes of the block may be used. The number stays the same while the block lives.
 * Returns 0 for NULL. */
size_t alloc_usable_size(const void *p);

#endif
