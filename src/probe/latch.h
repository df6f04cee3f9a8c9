/* latch.h - a lock of the probe's own, zero when free; waits in the kernel, past our own watch.
 *
 * Held for some dozen instructions by code that calls nobody. Whoever holds it is inside (self.h), so a signal handler
 * of the program that allocates meanwhile goes past the probe and cannot meet it.
 */
#ifndef CAIRN_PROBE_LATCH_H
#define CAIRN_PROBE_LATCH_H

#include "base/cpu.h"
#include "probe/stub.h"

#include <stdatomic.h>

struct latch {
    _Atomic uint32_t state; /* 0 free, 1 taken, 2 taken and somebody may wait */
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
        stub_call3(SYS_futex, (long)&latch->state, FUTEX_WAIT_PRIVATE, 2);
}

/* For who may have interrupted the one that holds it, and so must not wait for ever. */
static inline bool latch_take_soon(struct latch *latch)
{
    enum { TRIES = 1000 };
    for (int i = 0; i < TRIES; i++) {
        uint32_t free = 0;
        if (atomic_compare_exchange_strong_explicit(&latch->state, &free, 1, memory_order_acquire,
                                                    memory_order_relaxed))
            return true;
        stub_call0(SYS_sched_yield);
    }
    return false;
}

static inline void latch_drop(struct latch *latch)
{
    enum { FUTEX_WAKE_PRIVATE = 129 };
    if (UNLIKELY(atomic_exchange_explicit(&latch->state, 0, memory_order_release) == 2))
        stub_call3(SYS_futex, (long)&latch->state, FUTEX_WAKE_PRIVATE, 1);
}

/* In the child of a fork. Was it held by a thread that is gone? One that was not stays on a page of the parent's. */
static inline bool latch_reset(struct latch *latch)
{
    return atomic_load_explicit(&latch->state, memory_order_relaxed) != 0 &&
           atomic_exchange_explicit(&latch->state, 0, memory_order_relaxed) != 0;
}

#endif
