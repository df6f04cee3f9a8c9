/* spinning_lock: every malloc and free holds one spin lock for $ILL turns of a loop.
 *
 * If there are threads, Cairn must report the finding queues (docs/findings.md).
 */
#include "ill.h"

#include <pthread.h>

static pthread_spinlock_t lock;

__attribute__((constructor(101))) static void make(void)
{
    pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
}

static void hold(void)
{
    pthread_spin_lock(&lock);
    ill_rounds(ill_strength);
    pthread_spin_unlock(&lock);
}

#include "holding.h"
