/* nothing_for_zero.c - an allocator whose malloc(0) returns NULL, as C allows.
 *
 *     nothing_for_zero COUNT     calls malloc(0) COUNT times, and malloc(PTRDIFF_MAX) once; prints
 *                                how many calls returned NULL
 *
 * Compiled with -shared and -DLIBRARY_ONLY this file is the allocator.
 */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef LIBRARY_ONLY
static void *(*next_malloc)(size_t);

void *malloc(size_t bytes)
{
    if (next_malloc == NULL)
        next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    return bytes == 0 ? NULL : next_malloc(bytes);
}

void free(void *block)
{
    static void (*next_free)(void *);
    if (next_free == NULL)
        next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    next_free(block);
}
#else
int main(int argc, char **argv)
{
    long refused = malloc(PTRDIFF_MAX) == NULL;
    for (long left = argc > 1 ? atol(argv[1]) : 1; left > 0; left--)
        refused += malloc(0) == NULL;
    printf("%ld\n", refused);
    return 0;
}
#endif
