/* own_spin_lock: one spin lock of the allocator's own making, which is held for $ILL turns of a
 * loop at each malloc and free. A waiting thread reads the lock, with pauses.
 *
 * No lock of pthread's and no system call shows it. Cairn must report the finding spins
 * (docs/findings.md).
 */
#include "ill.h"

static _Atomic int spin_word;

static void hold(void)
{
    while (atomic_exchange_explicit(&spin_word, 1, memory_order_acquire) != 0)
        while (atomic_load_explicit(&spin_word, memory_order_relaxed) != 0)
            __builtin_ia32_pause();
    ill_rounds(ill_strength);
    atomic_store_explicit(&spin_word, 0, memory_order_release);
}

#include "holding.h"
