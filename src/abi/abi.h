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

/* As glibc: a block that is made 0 bytes large is freed, and NULL is no failure. */
static inline void *resized(void *p, size_t size)
{
    if (p != NULL && size == 0) {
        alloc_free(p);
        return NULL;
    }
    return or_enomem(alloc_realloc(p, size));
}

/* ISO C: any power of two, and any size. */
static inline void *aligned(size_t alignment, size_t size)
{
    if (UNLIKELY(!power_of_two(alignment))) {
        errno = EINVAL;
        return NULL;
    }
    return or_enomem(alloc_aligned(alignment, size));
}

/* After alloc_malloc_quick(). */
void *names_malloc_slow(size_t size) __attribute__((noinline));

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
