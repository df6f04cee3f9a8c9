/* slow_free: every free first does $ILL turns of a loop.
 *
 * In comparison with the allocator behind this library, Cairn must report the finding slow-free. If
 * frees are most of the allocator's work, Cairn must report slow-path instead.
 */
#include "ill.h"

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
}

static int ill_frees(void *block)
{
    (void)block;
    ill_rounds(ill_strength);
    return 1;
}
