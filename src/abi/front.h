/* front.h - the functions that the public names call: those of alloc/alloc.h, or those of
 * hardened/hardened.h in the hardened build.
 *
 * In the hardened build the fast paths return NULL, and so every call takes its slow path. The
 * return address that a slow path sees is that of the program's call, as in the plain build.
 */
#ifndef CAIRN_ABI_FRONT_H
#define CAIRN_ABI_FRONT_H

#include "alloc/alloc.h"
#include "alloc/shared_heap.h"
#include "hardened/hardened.h"

static inline __attribute__((always_inline)) void *front_malloc_quick(size_t size)
{
    return CAIRN_HARDENED ? NULL : alloc_malloc_quick(size);
}

static inline void *front_malloc_slow(size_t size, const void *caller)
{
    return CAIRN_HARDENED ? hardened_malloc(size, caller) : alloc_malloc_slow(size, caller);
}

static inline void *front_calloc_quick(size_t count, size_t size)
{
    return CAIRN_HARDENED ? NULL : alloc_calloc_quick(count, size);
}

static inline void *front_calloc_slow(size_t count, size_t size, const void *caller)
{
    return CAIRN_HARDENED ? hardened_calloc(count, size, caller)
                          : alloc_calloc_slow(count, size, caller);
}

static inline void *front_aligned_quick(size_t alignment, size_t size)
{
    return CAIRN_HARDENED ? NULL : alloc_aligned_quick(alignment, size);
}

static inline void *front_aligned_slow(size_t alignment, size_t size, const void *caller)
{
    return CAIRN_HARDENED ? hardened_aligned(alignment, size, caller)
                          : alloc_aligned_slow(alignment, size, caller);
}

static inline void *front_realloc_small(void *p, size_t size, const void *caller)
{
    return CAIRN_HARDENED ? hardened_realloc(p, size, caller) : alloc_realloc_small(p, size);
}

static inline void *front_realloc_large(void *p, size_t size, const void *caller)
{
    return CAIRN_HARDENED ? hardened_realloc(p, size, caller)
                          : alloc_realloc_large(p, size, caller);
}

static inline bool front_resize(void *p, size_t size, const void *caller)
{
    return CAIRN_HARDENED ? hardened_resize(p, size, caller) : alloc_resize(p, size);
}

static inline size_t front_usable_size(const void *p, const void *caller)
{
    return CAIRN_HARDENED ? hardened_usable_size(p, caller) : alloc_usable_size(p);
}

static inline __attribute__((always_inline)) void front_free(void *p, const void *caller)
{
    if (CAIRN_HARDENED)
        hardened_free(p, caller);
    else
        alloc_free(p);
}

static inline void *front_heap_allocate(struct heap *heap, size_t size, size_t alignment,
                                        bool *zero, const void *caller)
{
    if (!CAIRN_HARDENED)
        return shared_heap_allocate(heap, size, alignment, zero);
    *zero = true;
    return hardened_heap_allocate(heap, size, alignment, caller);
}

#endif
