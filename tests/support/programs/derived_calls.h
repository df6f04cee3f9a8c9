/* derived_calls.h - the allocator functions that follow from malloc, free and malloc_usable_size.
 *
 * An allocator of the tests includes this file once, after it has defined these three functions.
 * Its blocks need no larger alignment than those of malloc.
 */
#ifndef CAIRN_TESTS_DERIVED_CALLS_H
#define CAIRN_TESTS_DERIVED_CALLS_H

#include <stdlib.h>
#include <string.h>

EXPORTED void *calloc(size_t count, size_t bytes)
{
    size_t whole;
    void *given = __builtin_mul_overflow(count, bytes, &whole) ? NULL : malloc(whole);
    return given == NULL ? NULL : memset(given, 0, whole);
}

EXPORTED void *realloc(void *given, size_t bytes)
{
    void *moved = malloc(bytes);
    if (given == NULL || moved == NULL)
        return moved;
    size_t had = malloc_usable_size(given);
    memcpy(moved, given, had < bytes ? had : bytes);
    free(given);
    return moved;
}

EXPORTED void *memalign(size_t alignment, size_t bytes)
{
    (void)alignment;
    return malloc(bytes);
}

#endif
