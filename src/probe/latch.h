/* latch.h - the probe's own lock. All zeroes is a free latch.
 *
 * A latch is held briefly, by code that calls neither the program nor the allocator. The thread
 * that holds a latch has a guard other than SELF_OUTSIDE (self.h), or the latch is one that no
 * allocation takes (process.c). Suppose that a signal handler interrupts the holder and allocates.
 * Because of the guard, the allocation is not counted and takes no latch, so it cannot wait for its
 * own thread. A waiting thread sleeps in the kernel by a call of direct_syscall.h, which the probe
 * does not count.
 */
#ifndef CAIRN_PROBE_LATCH_H
#define CAIRN_PROBE_LATCH_H

#include "base/cpu.h"
#include "probe/direct_syscall.h"

#include <stdatomic.h>

struct latch {
    _Atomic uint32_t state; /* 0: free; 1: taken; 2: taken, and a thread may wait */
};

static inline void latch_take(struct latch *latch)
{
    enum { SPINS = 100, FUTEX_WAIT_PRIVATE = 128 };
    for (int i = 0; i < SPINS; i++) {
        uint32_t free = 0;
        if (atomic_compare_exchange_weak_explicit(&latch->state, &free, 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return;
        cpu_relax();
    }
    while (atomic_exchange_explicit(&latch->state, 2, memory_order_acquire) != 0)
        direct_call3(SYS_futex, (long)&latch->state, FUTEX_WAIT_PRIVATE, 2);
}

/* Tries to take the latch. Returns false if the latch was not free in 1,000 tries. Code that may
 * run in a signal handler calls this instead of latch_take(). The handler may have interrupted the
 * thread that holds the latch, and latch_take() would then wait forever. */
static inline bool latch_take_soon(struct latch *latch)
{
    enum { TRIES = 1000 };
    for (int i = 0; i < TRIES; i++) {
        uint32_t free = 0;
        if (atomic_compare_exchange_strong_explicit(&latch->state, &free, 1, memory_order_acquire,
                                                    memory_order_relaxed))
            return true;
        direct_call0(SYS_sched_yield);
    }
    return false;
}

static inline void latch_drop(struct latch *latch)
{
    enum { FUTEX_WAKE_PRIVATE = 129 };
    if (UNLIKELY(atomic_exchange_explicit(&latch->state, 0, memory_order_release) == 2))
        direct_call3(SYS_futex, (long)&latch->state, FUTEX_WAKE_PRIVATE, 1);
}

/* Frees a latch in the child of a fork. Returns true if the latch was held. The thread that held it
 * does not exist in the child. A free latch is only read, so that its page stays shared with the
 * parent. */
static inline bool latch_reset(struct latch *latch)
{
    return atomic_load_explicit(&latch->state, memory_order_relaxed) != 0 &&
           atomic_exchange_explicit(&latch->state, 0, memory_order_relaxed) != 0;
}

#endif
