/* slow_free: every free first does $ILL turns of a loop.
 *
 * Expected finding, in comparison with the allocator behind this library: slow-free, or slow-path
 * if frees are most of the allocator's work.
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
