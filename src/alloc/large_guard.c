#include "alloc/large_guard.h"

#include "alloc/hardening.h"
#include "base/ticks.h"
#include "os/os.h"

#include <string.h>

enum {
    FILLED_MOST = 64,
    EMPTIED_SLICES = 256, /* run_cache.h never keeps a longer run */
    LOOK_EVERY = 16,      /* calls between looks at the clock */

    /* A change of guards also causes page faults later. Together with them, it costs this many
     * times its own time. */
    FAULTS = 4,
};

/* --- the budget ------------------------------------------------------------------------------- */

static bool is_unlimited;

void large_guard_lift_limit(void)
{
    is_unlimited = true;
}

/* Adds to the budget a sixteenth of the time since the thread last read the clock. */
static void earn(struct large_budget *budget)
{
    uint64_t now = ticks_now();
    int64_t more = (int64_t)((now - budget->seen) / LARGE_BUDGET_SHARE);
    budget->seen = now;
    budget->missed = 0;
    bool full = more < 0 || more > LARGE_BUDGET_MOST || budget->left + more > LARGE_BUDGET_MOST;
    budget->left = full ? LARGE_BUDGET_MOST : budget->left + more;
}

bool large_guard_has_budget(struct large_budget *budget)
{
    if (os_page_bytes() > SLICE_BYTES)
        return false; /* a guard could reach into the next run */
    if (budget == NULL || is_unlimited || budget->spent < LARGE_BUDGET_BLOCKS || budget->left > 0)
        return true;
    if (LIKELY(++budget->missed < LOOK_EVERY))
        return false;
    earn(budget);
    return budget->left > 0;
}

static uint64_t begin(const struct large_budget *budget)
{
    return budget != NULL ? ticks_now() : 0;
}

/* Takes the cost of the change that began at `began` off the budget. If the thread lost the
 * processor during the change, the measured time is far too long. So the budget never falls below
 * minus LARGE_BUDGET_MOST. */
static void pay(struct large_budget *budget, uint64_t began)
{
    if (budget == NULL)
        return;
    if (budget->spent < LARGE_BUDGET_BLOCKS) {
        budget->spent++;
        return;
    }
    earn(budget);
    budget->left -= (int64_t)((budget->seen - began) * FAULTS);
    if (budget->left < -LARGE_BUDGET_MOST)
        budget->left = -LARGE_BUDGET_MOST;
}

/* --- the layout of a run ---------------------------------------------------------------------- */

/* Returns the bytes of the guard before a block. */
static size_t bytes_before(size_t alignment)
{
    size_t page = os_page_bytes();
    return alignment <= page && page < SLICE_BYTES ? page : 0;
}

size_t large_guard_room(size_t size, size_t alignment)
{
    size_t room;
    size_t guards = bytes_before(alignment) + os_page_bytes();
    return __builtin_add_overflow(size, guards, &room) ? SIZE_MAX : room;
}

size_t large_guard_alignment(const struct slab *slab)
{
    return large_guard_block(slab) == slab_start(slab) ? SLICE_BYTES : 1;
}

static size_t run_bytes(const struct slab *slab)
{
    return (size_t)slab->slices * SLICE_BYTES;
}

/* Returns the bytes from the start of the run to the end of the block's last OS page. A block of
 * size 0 has one OS page, because 0 bytes would mean LARGE_OPEN. */
static size_t bytes_used(size_t before, size_t size)
{
    size_t page = os_page_bytes();
    return (before + (size > 0 ? size : 1) + page - 1) & ~(page - 1);
}

/* Returns the number of filled bytes behind the block. */
static size_t filled(const struct slab *slab)
{
    size_t size = large_guard_size(slab);
    size_t left = bytes_used(slab->until, size) - slab->until - size;
    return left < FILLED_MOST ? left : FILLED_MOST;
}

bool large_guard_is_intact(const struct slab *slab)
{
    const unsigned char *end = (unsigned char *)large_guard_block(slab) + large_guard_size(slab);
    size_t count = filled(slab);
    for (size_t i = 0; i < count; i++)
        if (UNLIKELY(end[i] != HARDENING_FILL))
            return false;
    return true;
}

/* --- changes ---------------------------------------------------------------------------------- */

static void set_state(struct slab *slab, uint32_t state)
{
    atomic_store_explicit(&slab->end, state, memory_order_relaxed);
}

/* Removes the guards of a run. The guards of neighbouring runs may lie in one mapping of the
 * kernel. It must split this mapping, and cannot do so if the process has as many mappings as it
 * may have. Then all guards in the chunks of the run are removed. */
static void remove_guards(const struct slab *slab)
{
    uintptr_t start = (uintptr_t)slab_start(slab);
    uintptr_t end = start + run_bytes(slab);
    if (os_unguard((void *)start, end - start))
        return;
    start &= ~(uintptr_t)(CHUNK_BYTES - 1);
    end = (end + CHUNK_BYTES - 1) & ~(uintptr_t)(CHUNK_BYTES - 1);
    os_unguard((void *)start, end - start);
}

bool large_guard_open(struct slab *slab)
{
    uint32_t state = atomic_load_explicit(&slab->end, memory_order_relaxed);
    if (state != LARGE_OPEN && state != LARGE_EMPTIED)
        remove_guards(slab);
    set_state(slab, LARGE_OPEN);
    return state == LARGE_SEALED || state == LARGE_EMPTIED;
}

/* Makes room in a guarded or sealed run: removes the guards between `before` and `used` bytes from
 * its start. Returns false if the kernel refuses, or if the block of a guarded run does not begin
 * `before` bytes behind the start of the run. */
static bool fit(struct slab *slab, size_t before, size_t used)
{
    uint32_t state = slab->end;
    size_t page = os_page_bytes();
    if (state != LARGE_SEALED && slab->until != before)
        return false;
    size_t from = state == LARGE_SEALED ? before : state * page;
    if (used > from && !os_unguard(slab_start(slab) + from, used - from))
        return false;
    if (used > from)
        set_state(slab, (uint32_t)(used / page));
    return true;
}

/* If the run is open, sets guards before and behind its block. If the run is guarded, moves the
 * guard behind the block to the end of the block. */
static void guard(struct slab *slab, size_t before, size_t used)
{
    char *start = slab_start(slab);
    size_t page = os_page_bytes();
    size_t until = slab->end == LARGE_OPEN ? run_bytes(slab) : slab->end * page;
    if (slab->end == LARGE_OPEN && before > 0)
        os_guard(start, before);
    if (used < until)
        os_guard(start + used, until - used);
    set_state(slab, (uint32_t)(used / page));
}

void *large_guard_set(struct slab *slab, size_t size, size_t alignment, bool *zero,
                      struct large_budget *budget)
{
    size_t before = bytes_before(alignment);
    size_t used = bytes_used(before, size);
    uint64_t began = 0;
    uint32_t state = slab->end;
    bool must_change =
        state != LARGE_OPEN && (state == LARGE_SEALED || state == LARGE_EMPTIED ||
                                slab->until != before || used > state * os_page_bytes());
    if (must_change) {
        began = begin(budget);
        *zero |= state == LARGE_SEALED || state == LARGE_EMPTIED;
        if (state == LARGE_EMPTIED || !fit(slab, before, used))
            large_guard_open(slab);
    }
    bool is_close = slab->end != LARGE_OPEN && slab->end * os_page_bytes() <= used;
    bool sets_guards = !is_close && large_guard_has_budget(budget);
    if (sets_guards) {
        began = must_change ? began : begin(budget);
        if (!*zero)
            *zero = os_give_back(slab_start(slab), run_bytes(slab));
        guard(slab, before, used);
    }
    if (must_change || sets_guards)
        pay(budget, began);
    atomic_store_explicit(&slab->until, (uint32_t)before, memory_order_relaxed);
    atomic_store_explicit(&slab->posted, size, memory_order_relaxed);
    char *block = large_guard_block(slab);
    size_t count = filled(slab);
    if (count > 0)
        memset(block + size, HARDENING_FILL, count);
    return block;
}

void large_guard_seal(struct slab *slab, struct large_budget *budget)
{
    if (!large_guard_has_budget(budget))
        return;
    uint64_t began = begin(budget);
    char *start = slab_start(slab);
    if (slab->slices > EMPTIED_SLICES) {
        large_guard_open(slab);
        if (os_give_back(start, run_bytes(slab)))
            set_state(slab, LARGE_EMPTIED);
    } else {
        bool sealed = os_seal(start, run_bytes(slab));
        set_state(slab, LARGE_SEALED);
        if (!sealed)
            large_guard_open(slab); /* a part of the run may be a guard */
    }
    pay(budget, began);
}
