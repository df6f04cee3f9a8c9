#include "alloc/detour.h"

#include "alloc/heap_trim.h"
#include "base/ticks.h"

enum {
    /* A thread earns one detour for each 2^15 ticks of the clock: 7 µs at 5 GHz. */
    TICKS_SHIFT = 15,
    /* A thread can have this many detours left, however long it pauses. */
    DETOURS_MOST = 1024,
    /* A thread that reaches a slow path can have this many left: it is busy. */
    DETOURS_BUSY = 32,
    /* The time between two calls of heap_cool(): 2 ms at 5 GHz. */
    COOL_TICKS = 1 << 23,
    /* A thread with at least this many detours left calls the allocator rarely. */
    DETOURS_QUIET = 256,
};

const struct heap heap_away;

/* Adds the detours that the thread earned since the last call, up to a total of `most`. */
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

/* Called when a busy thread has made all its detours. Its lists could then serve all further calls,
 * so that the thread would never reach a slow path again. Therefore this function empties the lists
 * now and then: the next call of each class takes the slow path. */
static void meet_again(struct heap *heap)
{
    if (heap->trim.ticks - heap->trim.cooled_ticks < COOL_TICKS)
        return;
    heap->trim.cooled_ticks = heap->trim.ticks;
    heap_cool(heap);
}

void detour_begin(void)
{
    /* Read once: a signal handler may put the heap aside at any moment. */
    struct heap *heap = thread_heap;
    if (heap == &heap_away || heap == &heap_none || heap == &heap_gone || lock_is_unsafe())
        return;
    if (!heap->trim.due && !purge_is_due())
        return;
    earn(&heap->trim, DETOURS_BUSY);
    if (heap->trim.detours == 0)
        meet_again(heap);
    if (heap->trim.detours == 0)
        return;
    /* The heap is in hardening_caller before it leaves thread_heap, so that a handler finds it. */
    hardening_caller = heap;
    slab_interrupt_here();
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
