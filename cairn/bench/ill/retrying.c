/* retrying: every malloc replaces a shared value by compare-and-swap, with $ILL turns of a loop
 * between its load and its swap. It starts again if another thread was faster.
 *
 * In comparison with the allocator behind this library, Cairn must report the finding slow-reuse.
 */
#include "ill.h"

static void ill_allocates(size_t *bytes)
{
    static _Atomic unsigned long shared;
    (void)bytes;
    unsigned long seen = shared;
    do
        ill_rounds(ill_strength);
    while (!atomic_compare_exchange_weak(&shared, &seen, seen + 1));
}

static int ill_frees(void *block)
{
    (void)block;
    return 1;
}
