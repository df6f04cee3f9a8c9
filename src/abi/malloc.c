/* The names that C programs expect; argument rules and errno only. What they do is alloc/alloc.h's. */
#include "alloc/alloc.h"

#include <errno.h>

#define EXPORT __attribute__((visibility("default")))

static void *or_enomem(void *p)
{
    if (UNLIKELY(p == NULL))
        errno = ENOMEM;
    return p;
}

EXPORT void *malloc(size_t size)
{
    return or_enomem(alloc_malloc(size));
}

EXPORT void free(void *p)
{
    alloc_free(p);
}

EXPORT void *calloc(size_t count, size_t size)
{
    return or_enomem(alloc_calloc(count, size));
}

EXPORT void *realloc(void *p, size_t size)
{
    if (p != NULL && size == 0) { /* as glibc: freed, and NULL without an error */
        alloc_free(p);
        return NULL;
    }
    return or_enomem(alloc_realloc(p, size));
}

EXPORT void *reallocarray(void *p, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return or_enomem(NULL);
    return realloc(p, bytes);
}

static bool power_of_two(size_t x)
{
    return x != 0 && (x & (x - 1)) == 0;
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    if (!power_of_two(alignment)) {
        errno = EINVAL;
        return NULL;
    }
    return or_enomem(alloc_aligned(alignment, size));
}

EXPORT void *memalign(size_t alignment, size_t size)
{
    return aligned_alloc(alignment, size);
}

EXPORT int posix_memalign(void **result, size_t alignment, size_t size)
{
    if (!power_of_two(alignment) || alignment % sizeof(void *) != 0)
        return EINVAL;
    void *p = alloc_aligned(alignment, size);
    if (p == NULL)
        return ENOMEM;
    *result = p;
    return 0;
}

EXPORT size_t malloc_usable_size(void *p)
{
    return alloc_usable_size(p);
}
