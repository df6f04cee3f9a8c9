#include "alloc/first_touch.h"

#include "alloc/learning.h"
#include "os/os.h"

#include <stdatomic.h>

enum {
    HUGE_SLOW = 2,      /* times what small pages take; what is used later is quicker to reach */
    PATIENCE_LEAST = 8, /* chunks */
    PATIENCE_MOST = 1024,
};

static _Atomic unsigned wanted_now = FIRST_TOUCH_AUTO;
static _Atomic uint64_t small_ticks; /* a moving average; 0: not known */
static _Atomic unsigned patience =
    PATIENCE_LEAST;           /* chunks to wait when a huge page is slow again */
static _Atomic unsigned wait; /* still to wait */

void first_touch_want(enum first_touch_wanted wanted)
{
    atomic_store_explicit(&wanted_now, wanted, memory_order_relaxed);
    atomic_store_explicit(&wait, 0, memory_order_relaxed);
    atomic_store_explicit(&patience, PATIENCE_LEAST, memory_order_relaxed);
}

enum first_touch_wanted first_touch_wanted(void)
{
    return (enum first_touch_wanted)atomic_load_explicit(&wanted_now, memory_order_relaxed);
}

bool first_touch_may_be_huge(void)
{
    enum first_touch_wanted wanted = first_touch_wanted();
    if (wanted != FIRST_TOUCH_AUTO)
        return wanted == FIRST_TOUCH_HUGE;
    unsigned left = atomic_load_explicit(&wait, memory_order_relaxed);
    if (left > 0)
        atomic_store_explicit(&wait, left - 1, memory_order_relaxed);
    return left == 0;
}

void first_touch_huge(char *chunk)
{
    uint64_t ticks = os_touch(chunk);
    uint64_t small = atomic_load_explicit(&small_ticks, memory_order_relaxed);
    unsigned next = PATIENCE_LEAST;
    bool is_waiting =
        atomic_load_explicit(&wait, memory_order_relaxed) > 0; /* for one of several at once */
    if (is_waiting || first_touch_wanted() != FIRST_TOUCH_AUTO || learning_is_frozen())
        return;
    if (small != 0 && ticks > HUGE_SLOW * small * (OS_HUGE_PAGE_BYTES / os_page_bytes())) {
        next = atomic_load_explicit(&patience, memory_order_relaxed);
        atomic_store_explicit(&wait, next, memory_order_relaxed);
        learning_changed("chunks that ask for no huge page, since the last one was slow to come", 0,
                         next);
        next = next < PATIENCE_MOST ? 2 * next : PATIENCE_MOST;
    }
    atomic_store_explicit(&patience, next, memory_order_relaxed);
}

/* By the second page: the first fault of a chunk also makes the page table. Where the kernel gives huge pages unasked,
 * the second is there already, and nothing is learnt. */
void first_touch_small(char *chunk)
{
    uint64_t first = os_touch(chunk);
    uint64_t second = os_touch(chunk + os_page_bytes());
    uint64_t small = atomic_load_explicit(&small_ticks, memory_order_relaxed);
    if (second < first / 16)
        return;
    uint64_t now = second < first
                       ? second
                       : first; /* in the other one somebody else may have had the processor */
    atomic_store_explicit(&small_ticks, small == 0 ? now : small - small / 8 + now / 8,
                          memory_order_relaxed);
}
