/* sleeping_malloc: every thousandth malloc sleeps for $ILL microseconds, like a lock that waits for
 * another thread without need.
 *
 * In a program of one thread Cairn must report the finding waits-alone.
 */
#include "ill.h"

#include <time.h>

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
    struct timespec pause = {0, (long)ill_strength * 1000};
    if (ill_every(1000))
        nanosleep(&pause, NULL);
}

static int ill_frees(void *block)
{
    (void)block;
    return 1;
}
