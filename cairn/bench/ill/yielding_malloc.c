/* yielding_malloc: every $ILL-th malloc calls sched_yield(), as if another thread had to run first.
 *
 * In a program of several threads, Cairn must report the finding yields (docs/findings.md).
 */
#include "ill.h"

#include <sched.h>

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
    if (ill_every(ill_strength))
        sched_yield();
}

static int ill_frees(void *block)
{
    (void)block;
    return 1;
}
