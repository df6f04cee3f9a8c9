/* failed_reallocs.c - tries in vain to make blocks larger than any memory, and keeps them:
 *
 *     failed_reallocs KEPT FREED
 *
 * takes_blocks() allocates KEPT + FREED blocks of 1,000 bytes. A realloc of each block fails. Then
 * the last FREED blocks are freed, and the others stay until the end.
 */
#include <stdint.h>
#include <stdlib.h>

enum { MOST = 64, BYTES = 1000 };

static void *(*volatile do_malloc)(size_t) = malloc;
static void *(*volatile do_realloc)(void *, size_t) = realloc;
static void (*volatile do_free)(void *) = free;
static void *blocks[MOST];

__attribute__((noinline, noclone)) void takes_blocks(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        blocks[i] = do_malloc(BYTES);
}

int main(int arguments, char **argument)
{
    unsigned kept = arguments > 1 ? (unsigned)strtoul(argument[1], NULL, 10) : 0;
    unsigned freed = arguments > 2 ? (unsigned)strtoul(argument[2], NULL, 10) : 0;
    if (kept > MOST || freed > MOST - kept)
        return 2;
    takes_blocks(kept + freed);
    for (unsigned i = 0; i < kept + freed; i++)
        if (do_realloc(blocks[i], PTRDIFF_MAX) != NULL)
            return 1;
    while (freed > 0)
        do_free(blocks[kept + --freed]);
    return 0;
}
