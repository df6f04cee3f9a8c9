#include "alloc/shared_heap.h"

#include "alloc/broken.h"
#include "alloc/large.h"

struct heap *shared_heap_create(void)
{
    struct heap *heap = heap_acquire(true);
    if (heap != NULL) {
        lock_take(&heap->turn);
        heap->has_thread = false;
        heap->shared = true;
        lock_drop(&heap->turn);
    }
    return heap;
}

static void take_turn(struct heap *heap)
{
    lock_take(&heap->turn);
    if (UNLIKELY(!heap->shared))
        broken("a heap is used after it was given up", heap);
}

static void *pop_or_refill(struct heap *heap, unsigned class)
{
    take_turn(heap);
    void *block =
        heap->list[class] != NULL ? heap_pop_checked(heap, class) : heap_refill(heap, class);
    lock_drop(&heap->turn);
    return block;
}

/* Sweeps all heaps and tries again if there is no memory. The sweep happens between two turns,
 * because the list of all heaps is locked before any turn. */
static void *allocate_small(struct heap *heap, unsigned class)
{
    void *block = pop_or_refill(heap, class);
    if (UNLIKELY(block == NULL)) {
        heap_sweep();
        block = pop_or_refill(heap, class);
    }
    return block;
}

static void *allocate_large(struct heap *heap, size_t size, size_t alignment, bool *zero)
{
    void *p = large_allocate(size, alignment, zero);
    if (p == NULL)
        return NULL;
    take_turn(heap);
    heap_keep_large(heap, slab_at(region_index(p)));
    lock_drop(&heap->turn);
    return p;
}

void *shared_heap_allocate(struct heap *heap, size_t size, size_t alignment, bool *zero)
{
    *zero = false;
    unsigned class = size_class_aligned(size, alignment);
    return class < SIZE_CLASS_COUNT ? allocate_small(heap, class)
                                    : allocate_large(heap, size, alignment, zero);
}

/* From now on no thread gets the turn. The turn is dropped before heap_destroy() or heap_release()
 * is called, because they take the lock of the list of all heaps, which must be taken before any
 * turn. */
static void give_up(struct heap *heap)
{
    take_turn(heap);
    heap->shared = false;
    lock_drop(&heap->turn);
}

void shared_heap_destroy(struct heap *heap)
{
    give_up(heap);
    heap_destroy(heap);
}

void shared_heap_release(struct heap *heap)
{
    give_up(heap);
    heap_release(heap);
}

void shared_heap_check_all(void)
{
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next) {
        lock_take(&heap->turn);
        if (heap->shared)
            heap_check(heap);
        lock_drop(&heap->turn);
    }
}
