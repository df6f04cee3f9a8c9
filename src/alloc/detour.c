#include "alloc/detour.h"

#include "alloc/heap_trim.h"
#include "base/ticks.h"

enum {
    TICKS_SHIFT = 15,     /* one detour for each 2^15 ticks: 7 µs at 5 GHz */
    DETOURS_MOST = 1024,  /* that are left */
    DETOURS_BUSY = 32,    /* that are left to a thread that comes from a slow path */
    COOL_TICKS = 1 << 23, /* 2 ms at 5 GHz, between two calls of heap_cool() */
    DETOURS_QUIET = 256,  /* more than this are left: the thread is quiet */
};

const struct heap heap_away;

/* Adds the detours for the time since the last call, so that at most `most` are left. */
static void earn(struct heap_trim *trim, uint32_t most)
{
    uint64_t now = ticks_now();
    uint64_t earned = (now - trim->ticks) >> TICKS_SHIFT;
    if (earned == 0)
        return;
    trim->ticks = now;
    if (trim->detours < most)
        trim->detours = earned < most - trim->detours ? trim->detours + (uint32_t)earned : most;
}

/* Called when a busy thread has made all its detours. If the thread pauses now, and then uses again
 * and again what its lists have, it would reach no slow path. So empties the lists now and then:
 * whichever class is used next, its first call takes the slow path. */
static void meet_again(struct heap *heap)
{
    if (heap->trim.ticks - heap->trim.cooled_ticks < COOL_TICKS)
        return;
    heap->trim.cooled_ticks = heap->trim.ticks;
    heap_cool(heap);
}

void detour_begin(void)
{
    if (thread_is_away() || lock_is_unsafe() || !thread_has_heap())
        return;
    struct heap *heap = thread_heap;
    if (!heap->trim.due && !purge_is_due())
        return;
    earn(&heap->trim, DETOURS_BUSY);
    if (heap->trim.detours == 0)
        meet_again(heap);
    if (heap->trim.detours == 0)
        return;
    hardening_caller = heap;
    slab_interrupt_here(); /* the heap that is aside is known */
    thread_heap = (struct heap *)&heap_away;
}

void detour_end(void)
{
    struct heap *heap = thread_own_heap();
    thread_heap = heap;
    earn(&heap->trim, DETOURS_MOST);
    if (heap->trim.detours > 0)
        heap->trim.detours--;
    if (lock_is_unsafe() || lock_is_forking())
        return;
    purge_look();
    heap_trim(heap, heap->trim.detours >= DETOURS_QUIET);
}

void heap_due(void)
{
    detour_begin();
}
