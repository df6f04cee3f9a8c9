/* yielding_free: every $ILL-th free calls sched_yield().
 *
 * Cairn must report the finding waits-alone in a program of one thread, and the finding yields in a
 * program of several.
 */
#include "ill.h"

#include <sched.h>

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
}

static int ill_frees(void *block)
{
    (void)block;
    if (ill_every(ill_strength))
        sched_yield();
    return 1;
}
