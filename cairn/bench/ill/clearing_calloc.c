/* clearing_calloc: calloc clears each block $ILL times more than necessary.
 *
 * In comparison with the allocator behind this library, Cairn must report the finding slow-calloc.
 */
#include "ill.h"

static void clear(void *block, size_t bytes)
{
    for (unsigned long i = 0; i < ill_strength; i++) {
        memset(block, 0, bytes);
        __asm__ volatile("" ::"r"(block) : "memory");
    }
}

__attribute__((constructor)) static void begin(void)
{
    ill_zeroed = clear;
}

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
}

static int ill_frees(void *block)
{
    (void)block;
    return 1;
}
