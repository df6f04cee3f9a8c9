/* heap_locks.c - takes all locks of heap.c, for a fork and for statistics, and leaves out the other
 * threads in the child of a fork. */
#include "alloc/heap.h"

void heap_lock_all(void)
{
    lock_take(&heaps_lock); /* from here on the list of heaps does not change */
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next)
        lock_take(&heap->turn);
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next)
        lock_take(&heap->lock);
}

void heap_unlock_all(void)
{
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next) {
        lock_drop(&heap->lock);
        lock_drop(&heap->turn);
    }
    lock_drop(&heaps_lock);
}

void heap_lose_other_threads(struct heap *own)
{
    uint32_t in_use = 0;
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next) {
        heap->has_thread = heap == own;
        in_use += heap->has_thread || heap->shared;
    }
    atomic_store_explicit(&heaps_in_use, in_use, memory_order_relaxed);
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next)
        if (heap->has_thread)
            heap->runs.most = heap_run_share();
}
