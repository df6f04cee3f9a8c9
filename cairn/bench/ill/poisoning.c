/* poisoning: every free writes $ILL times over the whole block, like an allocator that finds uses
 * of freed memory.
 *
 * In comparison with the allocator behind this library, Cairn must report the finding slow-free.
 */
#include "ill.h"

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
}

static int ill_frees(void *block)
{
    for (unsigned long i = 0; i < ill_strength; i++) {
        memset(block, 0xdd, next_usable(block));
        __asm__ volatile("" ::"r"(block) : "memory");
    }
    return 1;
}
