/* futex_lock.h - the lock that the probe itself takes. All zeroes is a free lock.
 *
 * A lock is held briefly, by code that calls neither the program nor the allocator. The thread that
 * holds a lock has a guard other than THREAD_OUTSIDE (thread_state.h), or the lock is one that no
 * allocation takes (interpose_nonallocating.c). Suppose that a signal handler interrupts the holder
 * and allocates. Because of the guard, the allocation is not counted and takes no lock, so it
 * cannot wait for its own thread. A waiting thread sleeps in the kernel by a call of
 * direct_syscall.h, which the probe does not count.
 */
#ifndef CAIRN_PROBE_FUTEX_LOCK_H
#define CAIRN_PROBE_FUTEX_LOCK_H

#include "base/cpu.h"
#include "probe/direct_syscall.h"
#include "probe/signal_mask.h"

#include <stdatomic.h>

struct futex_lock {
    _Atomic uint32_t state; /* 0: free; 1: taken; 2: taken, and a thread may wait */
};

static inline void futex_lock_take(struct futex_lock *lock)
{
    enum { SPINS = 100, FUTEX_WAIT_PRIVATE = 128 };
    for (int i = 0; i < SPINS; i++) {
        uint32_t free = 0;
        if (atomic_compare_exchange_weak_explicit(&lock->state, &free, 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return;
        cpu_relax();
    }
    while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0)
        direct_call3(SYS_futex, (long)&lock->state, FUTEX_WAIT_PRIVATE, 2);
}

/* Tries to take the lock. Returns false if the lock was not free in 1,000 tries. Code that may run
 * in a signal handler calls this instead of futex_lock_take(). The handler may have interrupted the
 * thread that holds the lock, and futex_lock_take() would then wait forever. */
static inline bool futex_lock_take_soon(struct futex_lock *lock)
{
    enum { TRIES = 1000 };
    for (int i = 0; i < TRIES; i++) {
        uint32_t free = 0;
        if (atomic_compare_exchange_strong_explicit(&lock->state, &free, 1, memory_order_acquire,
                                                    memory_order_relaxed))
            return true;
        (void)direct_try(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
    }
    return false;
}

static inline void futex_lock_drop(struct futex_lock *lock)
{
    enum { FUTEX_WAKE_PRIVATE = 129 };
    if (UNLIKELY(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2))
        direct_call3(SYS_futex, (long)&lock->state, FUTEX_WAKE_PRIVATE, 1);
}

/* Like futex_lock_take() and futex_lock_drop(), for locks that are taken with the program's signals
 * unblocked. While the thread holds the lock, no handler can leave the operation by a jump
 * (signal_mask.h). futex_lock_leave() needs the value that futex_lock_enter() returned. */
static inline uint64_t futex_lock_enter(struct futex_lock *lock)
{
    uint64_t blocked = signals_block_handlers();
    futex_lock_take(lock);
    return blocked;
}

static inline void futex_lock_leave(struct futex_lock *lock, uint64_t blocked)
{
    futex_lock_drop(lock);
    signals_unblock(blocked);
}

/* Frees a lock in the child of a fork. Returns true if the lock was held. The thread that held it
 * does not exist in the child. A free lock is only read, so that its page stays shared with the
 * parent. */
static inline bool futex_lock_reset(struct futex_lock *lock)
{
    return atomic_load_explicit(&lock->state, memory_order_relaxed) != 0 &&
           atomic_exchange_explicit(&lock->state, 0, memory_order_relaxed) != 0;
}

#endif
