#include "alloc/purge.h"

#include "alloc/huge_page_collapse.h"
#include "alloc/learning_control.h"
#include "base/ticks.h"
#include "os/os.h"

enum {
    LOOK_TICKS = 1 << 26, /* between clock reads: 13 ms at 5 GHz, 67 ms at 1 GHz */
    SLACK_SLICES = (1 << 20) / SLICE_BYTES,
    SLACK_WATCHED_SLICES = (256 << 10) / SLICE_BYTES,
    HELD_SLICES = (128 << 20) / SLICE_BYTES,
    EPOCH_MS = 250,
};

static _Atomic uint64_t epoch_began_ns;
static _Atomic uint32_t epochs; /* number of epochs that have ended */
_Atomic bool purge_due;

uint32_t purge_epoch(void)
{
    return atomic_load_explicit(&epochs, memory_order_relaxed);
}

/* Returns true to one thread, once per epoch. Reading the system's clock takes a fifth of the time
 * of freeing a run, so it is read only if the processor's counter has advanced by LOOK_TICKS. */
static bool epoch_is_over(void)
{
    static _Atomic uint64_t looked_ticks;
    uint64_t ticks = ticks_now();
    if (ticks - atomic_load_explicit(&looked_ticks, memory_order_relaxed) < LOOK_TICKS)
        return false;
    atomic_store_explicit(&looked_ticks, ticks, memory_order_relaxed);
    uint64_t now = clock_now_ns();
    uint64_t began = atomic_load_explicit(&epoch_began_ns, memory_order_relaxed);
    return now - began > EPOCH_MS * NS_PER_MS &&
           atomic_compare_exchange_strong_explicit(&epoch_began_ns, &began, now,
                                                   memory_order_relaxed, memory_order_relaxed);
}

/* The state of purge_at_once(), in slices. Access is relaxed: a thread that misses a change acts on
 * values that were right a moment ago. */
static _Atomic size_t held = HELD_SLICES; /* see purge.h */
static _Atomic size_t went;               /* slices given back since the program last grew */
static _Atomic size_t fresh_before;       /* page_heap_level.fresh at the last purge */

/* True if the last purge gave back nothing, although there was idle memory to give back. */
static _Atomic bool refused;

static void hold(size_t slices)
{
    size_t before = atomic_exchange_explicit(&held, slices, memory_order_relaxed);
    learning_changed("idle memory kept beyond the amount of memory in use, in bytes",
                     before << SLICE_SHIFT, slices << SLICE_SHIFT);
}

/* Returns whether the last purges were in vain (purge.h). `came` is the number of non-resident
 * slices that the program has taken since the last purge. */
static bool was_in_vain(const struct page_heap_level *level, size_t came)
{
    size_t gone = atomic_load_explicit(&went, memory_order_relaxed);
    return !level->is_lazy && gone >= HELD_SLICES / 2 && came >= gone / 2;
}

static bool is_too_much(struct page_heap_use use)
{
    return use.idle > use.used + atomic_load_explicit(&held, memory_order_relaxed);
}

/* Raises a number to at least `least`, and returns its value before. Other threads may raise it,
 * too. */
static size_t raise_to_least(_Atomic size_t *number, size_t least)
{
    size_t before = atomic_load_explicit(number, memory_order_relaxed);
    while (before < least &&
           !atomic_compare_exchange_weak_explicit(number, &before, least, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
    return before;
}

/* Gives back memory because too much is idle. Does nothing if another thread has done so
 * meanwhile. */
static void purge_at_once(void)
{
    struct page_heap_level level = page_heap_level();
    if (!is_too_much(level.use))
        return;
    /* `before` is higher if another thread came here after this one had read its level. */
    size_t before = raise_to_least(&fresh_before, level.fresh);
    size_t came = level.fresh > before ? level.fresh - before : 0;
    bool in_vain = was_in_vain(&level, came);
    if (came != 0) /* if not, the program still shrinks, and `went` adds up */
        atomic_store_explicit(&went, 0, memory_order_relaxed);
    if (in_vain && !learning_is_frozen()) {
        hold(level.use.used + level.use.idle + HELD_SLICES);
        return;
    }
    size_t purged =
        page_heap_purge((level.use.used + HELD_SLICES) / 2 << SLICE_SHIFT) >> SLICE_SHIFT;
    atomic_fetch_add_explicit(&went, purged, memory_order_relaxed);
    atomic_store_explicit(&refused, purged == 0, memory_order_relaxed);
}

/* Gives back the memory that was idle during the whole epoch, except for the slack. Lowers `held`
 * by the amount that was given back. */
static void purge_unneeded(const struct page_heap_level *level, size_t slack)
{
    size_t keep =
        level->idle_least > slack ? level->use.idle - level->idle_least + slack : level->use.idle;
    size_t purged = page_heap_purge(keep << SLICE_SHIFT) >> SLICE_SHIFT;
    atomic_store_explicit(&refused, purged == 0 && keep < level->use.idle, memory_order_relaxed);
    size_t before = atomic_load_explicit(&held, memory_order_relaxed);
    hold(before > HELD_SLICES + purged ? before - purged : HELD_SLICES);
}

/* Written by purge_is_watched() before there is a second thread. */
static size_t slack_least = SLACK_SLICES;

void purge_is_watched(void)
{
    slack_least = SLACK_WATCHED_SLICES;
}

static size_t slack_of(struct page_heap_use use)
{
    return use.used / 32 > slack_least ? use.used / 32 : slack_least;
}

/* Called at the end of an epoch. Gives back the memory that was not needed, and lets
 * huge_page_collapse.h collapse dense chunks. */
static void look(void)
{
    struct page_heap_level level = page_heap_epoch();
    size_t slack = slack_of(level.use);
    atomic_fetch_add_explicit(&epochs, 1, memory_order_relaxed);
    atomic_store_explicit(&purge_due, level.use.idle > slack, memory_order_relaxed);
    atomic_store_explicit(&refused, false, memory_order_relaxed);
    if (level.use.idle > slack)
        purge_unneeded(&level, slack);
    /* Threads take no detours for memory that the machine does not take, such as locked memory. */
    if (purge_is_refused())
        atomic_store_explicit(&purge_due, false, memory_order_relaxed);
    huge_page_collapse_epoch();
}

/* --- growth ----------------------------------------------------------------------------------- */

static _Atomic size_t resident_most; /* slices used and idle after the greatest growth */
static _Atomic size_t growth_purged; /* slices that purge_for_growth() has given back */

static size_t least(size_t one, size_t other)
{
    return one < other ? one : other;
}

/* Returns how many idle slices go back before a block of `slices` slices is touched. */
static size_t goes_for_growth(const struct page_heap_level *level, size_t slices, size_t growth)
{
    size_t gone = atomic_load_explicit(&growth_purged, memory_order_relaxed);
    size_t may_go = level->fresh / 2 > gone ? level->fresh / 2 - gone : 0;
    return least(least(growth, slices), least(level->use.idle, may_go));
}

void purge_for_growth(size_t slices)
{
    if (slices < PURGE_GROWTH_SLICES)
        return;
    struct page_heap_level level = page_heap_level();
    size_t resident = level.use.used + level.use.idle;
    size_t most = atomic_load_explicit(&resident_most, memory_order_relaxed);
    if (resident <= most)
        return;
    size_t goes = goes_for_growth(&level, slices, resident - most);
    size_t purged = 0;
    if (goes > 0) {
        /* A purge of a whole chunk also counts slices that were not resident. */
        purged = page_heap_purge((level.use.idle - goes) << SLICE_SHIFT) >> SLICE_SHIFT;
        purged = least(purged, goes);
    }
    atomic_fetch_add_explicit(&growth_purged, purged, memory_order_relaxed);
    if (resident - purged > most)
        atomic_store_explicit(&resident_most, resident - purged, memory_order_relaxed);
}

/* --- for a thread that checks while others sleep ---------------------------------------------- */

static _Atomic uint32_t resting; /* 1: the thread sleeps in purge_rest() */

static bool is_idle(struct page_heap_use use)
{
    return use.idle > slack_of(use);
}

/* No wake-up is lost: a thread that frees first changes the idle memory under the page heap's lock,
 * and then reads `resting`. This function first sets `resting`, and then reads the idle memory
 * under the lock. So at least one of the two threads sees the change of the other. */
bool purge_rest(unsigned ms)
{
    atomic_store_explicit(&resting, 1, memory_order_relaxed);
    if (!is_idle(page_heap_level().use))
        os_wait_ms(&resting, 1, ms);
    return atomic_exchange_explicit(&resting, 0, memory_order_relaxed) == 0;
}

bool purge_is_refused(void)
{
    return atomic_load_explicit(&refused, memory_order_relaxed);
}

/* Wakes the thread that sleeps in purge_rest(). */
static void wake(void)
{
    atomic_store_explicit(&resting, 0, memory_order_relaxed);
    os_wake(&resting);
}

/* --- the interface ---------------------------------------------------------------------------- */

void purge_free(size_t index, size_t slices)
{
    struct page_heap_use use = page_heap_free(index, slices);
    if (is_idle(use) && !purge_is_due() && !purge_is_refused())
        atomic_store_explicit(&purge_due, true, memory_order_relaxed);
    if (UNLIKELY(atomic_load_explicit(&resting, memory_order_relaxed) != 0) && is_idle(use))
        wake();
    if (UNLIKELY(is_too_much(use)) && !atomic_load_explicit(&refused, memory_order_relaxed))
        purge_at_once();
    else if ((is_idle(use) || use.used >= CHUNK_SLICES) && epoch_is_over())
        look();
}

void purge_look(void)
{
    if (epoch_is_over())
        look();
}

size_t purge_held_bytes(void)
{
    return atomic_load_explicit(&held, memory_order_relaxed) << SLICE_SHIFT;
}
