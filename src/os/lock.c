#include "os/lock.h"

#include "base/clock.h"
#include "base/cpu.h"

enum { SPINS = 100 };

_Thread_local volatile uint32_t lock_count;
_Atomic(volatile uint32_t *) lock_forker;
_Atomic uint32_t lock_no_mark = 1;
_Atomic(_Atomic uint32_t *) lock_mark = &lock_no_mark;
_Atomic bool lock_was_ignored;

void lock_wait(struct lock *lock)
{
    if (lock_is_forking())
        return;
    if (lock_is_in_new_child()) {
        atomic_store_explicit(&lock_was_ignored, true, memory_order_relaxed);
        return;
    }
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&lock->state, memory_order_relaxed) == 0 && lock_try(lock))
            return;
        cpu_relax();
    }
    while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0)
        os_wait(&lock->state, 2);
}

bool lock_acquire_within(struct lock *lock, unsigned ms)
{
    if (lock_try(lock))
        return true;
    uint64_t end = clock_now_ns() + (uint64_t)ms * 1000000;
    while (!lock_try(lock)) {
        if (clock_now_ns() >= end)
            return false;
        /* The lock's state is 1, or 2 while another thread waits. os_wait_ms() returns at once if
         * the state is not the value that it is given. */
        uint32_t now = atomic_load_explicit(&lock->state, memory_order_relaxed);
        if (now != 0)
            os_wait_ms(&lock->state, now, 1);
    }
    return true;
}

void lock_watch_forks(void)
{
    static _Atomic uint32_t refused = 1;
    _Atomic uint32_t *none = &lock_no_mark;
    _Atomic uint32_t *mark = os_map_for_one_process();
    if (mark != NULL)
        atomic_store_explicit(mark, 1, memory_order_relaxed);
    else
        mark = &refused; /* the kernel is not asked again */
    /* Release order publishes the 1 to lock_is_in_new_child(). */
    if (!atomic_compare_exchange_strong_explicit(&lock_mark, &none, mark, memory_order_release,
                                                 memory_order_relaxed) &&
        mark != &refused)
        os_unmap(mark, os_page_bytes());
}
