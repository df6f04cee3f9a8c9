/* malloc.c - the names of ISO C and POSIX, and their predecessors. The functions here check the
 * arguments and set errno as the standards require. alloc/alloc.h does the work. */
#include "abi/abi.h"
#include "os/os.h"

void *names_malloc_slow(size_t size)
{
    return or_enomem(front_malloc_slow(size, __builtin_return_address(0)));
}

void *names_calloc_slow(size_t count, size_t size)
{
    return or_enomem(front_calloc_slow(count, size, __builtin_return_address(0)));
}

/* As in glibc, realloc(p, 0) frees the block and returns NULL, which is not a failure. */
void *names_realloc_slow(void *p, size_t size)
{
    if (size > 0)
        return or_enomem(front_realloc_large(p, size, __builtin_return_address(0)));
    if (p == NULL)
        return names_malloc_slow(0);
    front_free(p, __builtin_return_address(0));
    return NULL;
}

EXPORT void *malloc(size_t size)
{
    void *p = front_malloc_quick(size);
    return LIKELY(p != NULL) ? p : names_malloc_slow(size);
}

EXPORT void free(void *p)
{
    front_free(p, __builtin_return_address(0));
}

EXPORT void *calloc(size_t count, size_t size)
{
    void *p = front_calloc_quick(count, size);
    return LIKELY(p != NULL) ? p : names_calloc_slow(count, size);
}

EXPORT void *realloc(void *p, size_t size)
{
    return resized(p, size);
}

/* Calls realloc() by its public name, as glibc does: a program that defines its own malloc, calloc,
 * realloc and free, but no reallocarray, then gets a block of its own allocator. */
EXPORT void *reallocarray(void *p, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return or_enomem(NULL);
    return realloc(p, bytes);
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    return aligned(alignment, size, __builtin_return_address(0));
}

EXPORT int posix_memalign(void **result, size_t alignment, size_t size)
{
    if (!power_of_two(alignment) || alignment % sizeof(void *) != 0)
        return EINVAL;
    void *p = front_aligned_slow(alignment, size, __builtin_return_address(0));
    if (p == NULL)
        return ENOMEM;
    *result = p;
    return 0;
}

EXPORT size_t malloc_usable_size(void *p)
{
    return front_usable_size(p, __builtin_return_address(0));
}

/* C23: the caller passes the requested size. We do not need it, and a wrong size does no harm. */
EXPORT void free_sized(void *p, size_t size)
{
    (void)size;
    front_free(p, __builtin_return_address(0));
}

EXPORT void free_aligned_sized(void *p, size_t alignment, size_t size)
{
    (void)alignment, (void)size;
    front_free(p, __builtin_return_address(0));
}

/* --- older than posix_memalign() -------------------------------------------------------------- */

/* As in glibc, an alignment that is not a power of two is rounded up to the next one. */
void *names_memalign(size_t alignment, size_t size)
{
    if (alignment > SIZE_MAX / 2 + 1) {
        errno = EINVAL;
        return NULL;
    }
    size_t power = 16;
    while (power < alignment)
        power *= 2;
    return or_enomem(front_aligned_slow(power, size, __builtin_return_address(0)));
}

void *names_valloc(size_t size)
{
    return or_enomem(front_aligned_slow(os_page_bytes(), size, __builtin_return_address(0)));
}

/* Rounds the size up to whole OS pages. */
void *names_pvalloc(size_t size)
{
    size_t page = os_page_bytes();
    size_t bytes;
    if (__builtin_add_overflow(size, page - 1, &bytes))
        return or_enomem(NULL);
    return names_valloc(bytes & ~(page - 1));
}

EXPORT void *memalign(size_t alignment, size_t size)
{
    return names_memalign(alignment, size);
}

EXPORT void *valloc(size_t size)
{
    return names_valloc(size);
}

EXPORT void *pvalloc(size_t size)
{
    return names_pvalloc(size);
}
