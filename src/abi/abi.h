/* abi.h - what every file of names needs: how one is shown, and errno. What the names do is alloc/alloc.h's. */
#ifndef CAIRN_ABI_ABI_H
#define CAIRN_ABI_ABI_H

#include "alloc/alloc.h"
#include "alloc/options.h"

#include <errno.h>

#define EXPORT __attribute__((visibility("default")))

/* `p`, and errno where there is none. */
static inline void *or_enomem(void *p)
{
    if (UNLIKELY(p == NULL))
        errno = ENOMEM;
    return p;
}

static inline bool power_of_two(size_t x)
{
    return x != 0 && (x & (x - 1)) == 0;
}

/* The cold doors of malloc(), calloc() and realloc(): what is not done at once, and large blocks. A name ends in a jump to
 * one, so that the door's return address is that of the name: where the program called from (alloc/site.h). */
void *names_malloc_slow(size_t size) __attribute__((noinline));
void *names_calloc_slow(size_t count, size_t size) __attribute__((noinline));
void *names_realloc_slow(void *p, size_t size) __attribute__((noinline));

static inline void *resized(void *p, size_t size)
{
    if (UNLIKELY(size - 1 >= SIZE_CLASS_BYTES_MAX)) /* 0 wraps */
        return names_realloc_slow(p, size);
    return or_enomem(alloc_realloc_small(p, size));
}

/* ISO C: any power of two, and any size. */
static inline void *aligned(size_t alignment, size_t size, const void *caller)
{
    if (UNLIKELY(!power_of_two(alignment))) {
        errno = EINVAL;
        return NULL;
    }
    return or_enomem(alloc_aligned_slow(alignment, size, caller));
}

/* memalign(), valloc() and pvalloc(), which the C library has by other names as well. */
void *names_memalign(size_t alignment, size_t size);
void *names_valloc(size_t size);
void *names_pvalloc(size_t size);

/* Whether the calling thread has a heap of its own. */
static inline bool names_has_heap(void)
{
    return thread_heap != &heap_none && thread_heap != &heap_gone;
}

/* What this thread holds ready, and what only waits for its owner, in any heap, is free. */
void names_collect(void);

/* Statistics on stderr. */
void names_tell(enum options_statistics how);

#endif
