/* lock.h - a lock of four bytes. A thread waits for it in the kernel. A lock whose bytes are all
 * zero is free.
 *
 * The lock has three states, so that a thread which does not have to wait makes no system call
 * (Drepper, "Futexes Are Tricky", mutex 3). The lock is not recursive and not fair. The next
 * lock_take() sees everything that was written before lock_drop(). The lock may be used within
 * malloc. A fork handler may take the lock before the fork, and another handler may drop it after
 * the fork.
 *
 * While glibc says that the process has only one thread, the lock uses no atomic exchange, because
 * an atomic exchange takes as long as twenty other instructions. Other C libraries do not say it,
 * so there the lock always uses one. No thread may be created while a lock is held.
 */
#ifndef CAIRN_OS_LOCK_H
#define CAIRN_OS_LOCK_H

#include "os/os.h"

#include <stdatomic.h>

#if __has_include(<sys/single_threaded.h>) /* glibc 2.32 */
#include <sys/single_threaded.h>
#define LOCK_IS_ALONE __libc_single_threaded
#else
#define LOCK_IS_ALONE false
#endif

struct lock {
    _Atomic uint32_t state; /* 0: free, 1: taken, 2: taken, and a thread may wait */
};

/* Takes a lock that is not free: spins for a while, then waits in the kernel. */
void lock_wait(struct lock *lock) __attribute__((cold));

/* Takes the lock if it is free. Returns false if it is not. */
static inline bool lock_try(struct lock *lock)
{
    uint32_t free = 0;
    if (LOCK_IS_ALONE) {
        bool is_free = atomic_load_explicit(&lock->state, memory_order_relaxed) == 0;
        if (LIKELY(is_free))
            atomic_store_explicit(&lock->state, 1, memory_order_relaxed);
        return is_free;
    }
    return atomic_compare_exchange_strong_explicit(&lock->state, &free, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static inline void lock_take(struct lock *lock)
{
    if (UNLIKELY(!lock_try(lock)))
        lock_wait(lock);
}

static inline void lock_drop(struct lock *lock)
{
    if (LOCK_IS_ALONE && LIKELY(atomic_load_explicit(&lock->state, memory_order_relaxed) == 1))
        atomic_store_explicit(&lock->state, 0, memory_order_relaxed);
    else if (UNLIKELY(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2))
        os_wake(&lock->state);
}

/* Makes the lock free in the child of a fork, whichever thread held it in the parent. */
static inline void lock_reset(struct lock *lock)
{
    atomic_store_explicit(&lock->state, 0, memory_order_relaxed);
}

#endif
