#include "os/lock.h"

#include "base/cpu.h"

enum { SPINS = 100 };

void lock_wait(struct lock *lock)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&lock->state, memory_order_relaxed) == 0 && lock_try(lock))
            return;
        cpu_relax();
    }
    while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0)
        os_wait(&lock->state, 2);
}
