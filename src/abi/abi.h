/* abi.h - shared by the files that define public names: the macro that exports a name, and the
 * functions that set errno. The functions of alloc/alloc.h do the work. */
#ifndef CAIRN_ABI_ABI_H
#define CAIRN_ABI_ABI_H

#include "abi/front.h"
#include "alloc/options.h"

#include <errno.h>

#define EXPORT __attribute__((visibility("default")))

/* Returns `p`. Sets errno to ENOMEM if `p` is NULL. */
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

/* Slow paths of malloc(), calloc() and realloc(), which serve large blocks, too. Each public
 * function ends in a jump to its slow path. The return address of the slow path is therefore the
 * place of the program's call, which is the call site (alloc/site.h). */
void *names_malloc_slow(size_t size) __attribute__((noinline));
void *names_calloc_slow(size_t count, size_t size) __attribute__((noinline));
void *names_realloc_slow(void *p, size_t size) __attribute__((noinline));

static inline void *resized(void *p, size_t size)
{
    if (UNLIKELY(size - 1 >= SIZE_CLASS_BYTES_MAX)) /* 0 wraps */
        return names_realloc_slow(p, size);
    return or_enomem(front_realloc_small(p, size, __builtin_return_address(0)));
}

/* Like aligned_alloc() of ISO C, for any power of two and any size. Fails with EINVAL if
 * `alignment` is not a power of two. */
static inline void *aligned(size_t alignment, size_t size, const void *caller)
{
    if (UNLIKELY(!power_of_two(alignment))) {
        errno = EINVAL;
        return NULL;
    }
    return or_enomem(front_aligned_slow(alignment, size, caller));
}

/* The bodies of memalign(), valloc() and pvalloc(), and of glibc's other names for these
 * functions. */
void *names_memalign(size_t alignment, size_t size);
void *names_valloc(size_t size);
void *names_pvalloc(size_t size);

/* Returns true if the calling thread has a heap of its own. */
static inline bool names_has_heap(void)
{
    return thread_has_heap();
}

/* Gives the free memory that this thread keeps back to the page heap. Does the same with every
 * slab, of any heap, whose live blocks are all posted (remote.h). Also gives free pages within this
 * thread's slabs back to the kernel. */
void names_collect(void);

/* Writes statistics to stderr, in the form that `how` says. */
void names_tell(enum options_statistics how);

#endif
