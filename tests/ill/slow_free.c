/* slow_free: every free goes round $ILL times before it frees.
 *
 * Found beside the allocator behind it: slow-free, or slow-path where freeing is most of what is done. */
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
