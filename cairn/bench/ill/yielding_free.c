/* yielding_free: every free calls sched_yield() $ILL times.
 *
 * Cairn must report the finding waits-for-nobody in a program of one thread, and calls-the-kernel
 * or queues in a program of several.
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
    for (unsigned long i = 0; i < ill_strength; i++)
        sched_yield();
    return 1;
}
