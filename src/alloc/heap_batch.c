/* heap_batch.c - gathers and posts blocks of other owners' slabs (batch.h). */
#include "alloc/heap.h"

/* (owner only) Empties a batch and posts its blocks. */
static void post_batch(struct heap *heap, struct batch *batch)
{
    lock_enter();
    struct slab *slab = atomic_load_explicit(&batch->slab, memory_order_relaxed);
    uint64_t word = atomic_load_explicit(&batch->word, memory_order_relaxed);
    atomic_store_explicit(&batch->slab, NULL, memory_order_relaxed);
    heap->batched &= ~(UINT64_C(1) << (batch - heap->batches));
    char *start = slab_start(slab);
    struct block *first = (struct block *)(start + batch_first(word));
    struct block *last = (struct block *)(start + batch_last(word));
    if (UNLIKELY(remote_post(slab, first, last, batch_count(word)) != REMOTE_POSTED))
        heap_post_locked(slab, first, last, batch_count(word));
    lock_leave();
}

bool heap_begin_batch(struct heap *heap, struct slab *slab, struct block *block, size_t offset,
                      uintptr_t last)
{
    const struct heap *owner = atomic_load_explicit(&slab->owner, memory_order_acquire);
    if (slab->slices != 1 || batch_most(slab->class) < 2 || owner == NULL ||
        atomic_load_explicit(&owner->shared, memory_order_relaxed) || !heap->has_thread ||
        lock_is_unsafe())
        return false;
    struct batch *batch = batch_of(heap->batches, slab);
    if (!batch_is_of(batch, NULL))
        post_batch(heap, batch);
    slab_mark_by(block, NULL, last);
    slab_interrupt_here(); /* a handler finds each block of the batch marked */
    atomic_store_explicit(&batch->word, batch_word(slab->class, offset), memory_order_relaxed);
    heap->batched |= UINT64_C(1) << (batch - heap->batches);
    slab_interrupt_here(); /* a handler finds no slab in an incomplete batch */
    atomic_store_explicit(&batch->slab, slab, memory_order_relaxed);
    return true;
}

void heap_post_full(struct heap *heap, struct batch *batch)
{
    if (!lock_is_unsafe())
        post_batch(heap, batch);
}

void heap_post_batches(struct heap *heap)
{
    while (heap->batched != 0)
        post_batch(heap, &heap->batches[__builtin_ctzll(heap->batched)]);
}
