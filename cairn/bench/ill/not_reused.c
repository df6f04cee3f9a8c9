/* not_reused: $ILL percent of the freed blocks are never used again.
 *
 * Cairn must report the finding not-reused (docs/findings.md). If the healthy allocator requests
 * little memory at a time from the kernel, Cairn must also report asks-too-often.
 */
#include "ill.h"

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
}

static int ill_frees(void *block)
{
    static _Atomic unsigned long frees;
    (void)block;
    return frees++ % 100 >= ill_strength;
}
