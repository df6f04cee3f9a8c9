/* not_reused: of 100 blocks that are freed $ILL never serve again.
 *
 * Found: not-reused; and of a healthy one that asks the kernel for little at a time, asks-too-often. */
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
