#include "alloc/huge_page_timing.h"

#include "alloc/learning_control.h"
#include "os/os.h"

#include <stdatomic.h>

enum {
    /* A huge page is slow if its touch takes more than this many times as long as the touches of
     * all the small pages that it replaces. The factor is above 1, because later accesses to a huge
     * page are faster. */
    HUGE_SLOW = 2,

    PATIENCE_LEAST = 8, /* limits of `patience`, in chunks */
    PATIENCE_MOST = 1024,
};

static _Atomic unsigned wanted_now = HUGE_PAGE_AUTO;
/* Time of the first touch of a small page, as a moving average. 0 if it is not known yet. */
static _Atomic uint64_t small_ticks;

/* Number of chunks that request no huge page after the next slow huge page. */
static _Atomic unsigned patience = PATIENCE_LEAST;

static _Atomic unsigned wait; /* how many of the next chunks request no huge page */

void huge_page_want(enum huge_page_use wanted)
{
    atomic_store_explicit(&wanted_now, wanted, memory_order_relaxed);
    atomic_store_explicit(&wait, 0, memory_order_relaxed);
    atomic_store_explicit(&patience, PATIENCE_LEAST, memory_order_relaxed);
}

enum huge_page_use huge_page_wanted(void)
{
    return (enum huge_page_use)atomic_load_explicit(&wanted_now, memory_order_relaxed);
}

bool huge_page_may_be_requested(void)
{
    enum huge_page_use wanted = huge_page_wanted();
    if (wanted != HUGE_PAGE_AUTO)
        return wanted == HUGE_PAGE_ALWAYS;
    unsigned left = atomic_load_explicit(&wait, memory_order_relaxed);
    if (left > 0)
        atomic_store_explicit(&wait, left - 1, memory_order_relaxed);
    return left == 0;
}

void huge_page_time_huge(char *chunk)
{
    uint64_t ticks = os_touch(chunk);
    uint64_t small = atomic_load_explicit(&small_ticks, memory_order_relaxed);
    unsigned next = PATIENCE_LEAST;
    /* If several threads get slow huge pages at the same time, only the first one counts. */
    bool is_waiting = atomic_load_explicit(&wait, memory_order_relaxed) > 0;
    if (is_waiting || huge_page_wanted() != HUGE_PAGE_AUTO || learning_is_frozen())
        return;
    if (small != 0 && ticks > HUGE_SLOW * small * (OS_HUGE_PAGE_BYTES / os_page_bytes())) {
        next = atomic_load_explicit(&patience, memory_order_relaxed);
        atomic_store_explicit(&wait, next, memory_order_relaxed);
        learning_changed("chunks that will not request a huge page, because the last one was slow",
                         0, next);
        next = next < PATIENCE_MOST ? 2 * next : PATIENCE_MOST;
    }
    atomic_store_explicit(&patience, next, memory_order_relaxed);
}

/* Learns from the shorter of the two touches. This is usually the second touch, because the first
 * page fault in a chunk also creates the page table. If the kernel gives huge pages without being
 * asked, the second page is present already. Its touch is then much quicker, and nothing is
 * learnt. */
void huge_page_time_small(char *chunk)
{
    uint64_t first = os_touch(chunk);
    uint64_t second = os_touch(chunk + os_page_bytes());
    uint64_t small = atomic_load_explicit(&small_ticks, memory_order_relaxed);
    if (second < first / 16)
        return;
    /* Takes the shorter of the two times, because the thread may have been interrupted during the
     * longer one. */
    uint64_t now = second < first ? second : first;
    atomic_store_explicit(&small_ticks, small == 0 ? now : small - small / 8 + now / 8,
                          memory_order_relaxed);
}
