/* lock.h - a lock of four bytes, zero when free; waits in the kernel.
 *
 * Three states, so that who meets nobody makes no system call (Drepper, "Futexes Are Tricky", mutex 3). Not recursive,
 * not fair. lock_drop() publishes to the next lock_take(). Usable within malloc, and between fork's two handlers.
 *
 * As long as glibc says that the process has but one thread, nothing is exchanged: a locked instruction takes as long as twenty
 * others. No lock is held while a thread is created.
 */
#ifndef CAIRN_OS_LOCK_H
#define CAIRN_OS_LOCK_H

#include "os/os.h"

#include <stdatomic.h>
#include <sys/single_threaded.h>

struct lock {
    _Atomic uint32_t state; /* 0 free, 1 taken, 2 taken and somebody may wait */
};

void lock_wait(struct lock *lock) __attribute__((cold));

static inline bool lock_try(struct lock *lock)
{
    uint32_t free = 0;
    if (__libc_single_threaded) {
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
    if (__libc_single_threaded &&
        LIKELY(atomic_load_explicit(&lock->state, memory_order_relaxed) == 1))
        atomic_store_explicit(&lock->state, 0, memory_order_relaxed);
    else if (UNLIKELY(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2))
        os_wake(&lock->state);
}

/* In the child of a fork, whoever held it: free. */
static inline void lock_reset(struct lock *lock)
{
    atomic_store_explicit(&lock->state, 0, memory_order_relaxed);
}

#endif
