/* global_lock: every malloc and free holds one lock for $ILL turns of a loop.
 *
 * If there are threads, Cairn must report the finding queues (docs/findings.md).
 */
#include "ill.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void hold(void)
{
    pthread_mutex_lock(&lock);
    ill_rounds(ill_strength);
    pthread_mutex_unlock(&lock);
}

#include "holding.h"
