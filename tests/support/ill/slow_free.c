/* slow_free: every free first does $ILL turns of a loop.
 *
 * Expected finding, in comparison with the allocator behind it: slow-free, or slow-path if most of
 * the work is freeing.
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
