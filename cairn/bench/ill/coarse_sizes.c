/* coarse_sizes: every block is $ILL percent larger than requested.
 *
 * Cairn must report the finding sizes-too-coarse (docs/findings.md).
 */
#include "ill.h"

static void ill_allocates(size_t *bytes)
{
    *bytes += *bytes * ill_strength / 100;
}

static int ill_frees(void *block)
{
    (void)block;
    return 1;
}
