/* heap_locks.c - takes all locks of heap.c, for a fork and for statistics. */
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
