/* failed_mallocs.c - frees blocks and then asks in vain for one that is larger than any memory:
 *
 *     failed_mallocs TIMES
 *
 * Each time takes_block() allocates a block of 1,000 bytes. The block is freed, and a malloc, a
 * calloc and an aligned_alloc fail.
 */
#include <stdint.h>
#include <stdlib.h>

static void *(*volatile do_malloc)(size_t) = malloc;
static void *(*volatile do_calloc)(size_t, size_t) = calloc;
static void *(*volatile do_aligned)(size_t, size_t) = aligned_alloc;
static void (*volatile do_free)(void *) = free;

__attribute__((noinline, noclone)) void *takes_block(void)
{
    return do_malloc(1000);
}

int main(int arguments, char **argument)
{
    unsigned times = arguments > 1 ? (unsigned)strtoul(argument[1], NULL, 10) : 0;
    for (unsigned i = 0; i < times; i++) {
        do_free(takes_block());
        if (do_malloc(PTRDIFF_MAX) != NULL || do_calloc(1, PTRDIFF_MAX) != NULL ||
            do_aligned(64, PTRDIFF_MAX - 63) != NULL)
            return 1;
    }
    return 0;
}
