/* heap_large.c - the list of the large blocks of a shared heap. */
#include "alloc/heap.h"
#include "alloc/slab_list.h"

void heap_keep_large(struct heap *heap, struct slab *slab)
{
    lock_take(&heap->lock);
    slab_list_add(&heap->large, slab);
    atomic_store_explicit(&slab->owner, heap, memory_order_release);
    lock_drop(&heap->lock);
}

void heap_drop_large(struct heap *heap, struct slab *slab)
{
    lock_take(&heap->lock);
    if (atomic_load_explicit(&slab->owner, memory_order_relaxed) == heap) {
        slab_list_remove(&heap->large, slab);
        atomic_store_explicit(&slab->owner, NULL, memory_order_relaxed);
    }
    lock_drop(&heap->lock);
}
