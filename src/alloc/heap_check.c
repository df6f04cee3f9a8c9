/* heap_check.c - asserts the contract of heap.h. */
#include "alloc/heap.h"

#include "alloc/broken.h"

/* Asserts what holds for a list of slabs while its lock is held, even if other threads run. */
static void check_links(const struct heap *owner, uint32_t first, enum remote_state state)
{
    uint32_t before = 0;
    for (uint32_t index = first; index != 0; index = slab_at(index)->next) {
        struct slab *slab = slab_at(index);
        CHECK_THAT(slab->kind == RUN_SLAB && slab->slices == slab_slices(slab->class));
        CHECK_THAT(atomic_load(&slab->owner) == owner);
        CHECK_THAT(remote_state(slab) == state);
        CHECK_THAT(slab->prev == before);
        before = index;
    }
}

/* Asserts the contract of every slab on a list. Returns how many of these slabs have no live
 * block. */
static uint32_t check_slabs(uint32_t first)
{
    uint32_t empty = 0;
    for (uint32_t index = first; index != 0; index = slab_at(index)->next) {
        slab_check(slab_at(index));
        empty += slab_live(slab_at(index)) == 0;
    }
    return empty;
}

/* The caller holds the heap's lock. */
static void check_links_of_heap(const struct heap *heap)
{
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++)
        check_links(heap, heap->partial[class], REMOTE_PARKED);
    check_links(heap, heap->full, REMOTE_FULL);
    for (uint32_t index = heap->large; index != 0; index = slab_at(index)->next)
        CHECK_THAT(slab_at(index)->kind == RUN_LARGE &&
                   atomic_load(&slab_at(index)->owner) == heap);
}

void heap_check(struct heap *heap)
{
    run_cache_check(&heap->runs);
    if (heap->big != NULL)
        big_cache_check(heap->big);
    lock_take(&heap->lock);
    check_links_of_heap(heap);
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++) {
        struct slab *slab = heap->current[class];
        int32_t length = 0;
        for (struct block *block = heap->list[class]; block != NULL;
             block = block->next, length++) {
            CHECK_THAT(slab_is_marked(block));
            struct slab *its = slab_of(block);
            CHECK_THAT(slab_has_block(its, block) && its->class == class &&
                       atomic_load(&its->owner) == heap);
        }
        int32_t carved =
            heap->room[class] + length - (heap->warm >> class & 1 ? heap_hot(class) : 0);
        /* `carved` is the number of blocks that the last refill carved for the list. These blocks
         * are on the list, or were handed out since. */
        CHECK_THAT(carved >= 0 && carved <= HEAP_CARVED_MOST);
        if (slab != NULL) {
            CHECK_THAT(slab->class == class && remote_state(slab) == REMOTE_CURRENT);
            CHECK_THAT(atomic_load(&slab->owner) == heap);
            slab_check(slab);
        }
        CHECK_THAT(check_slabs(heap->partial[class]) == (heap->empty >> class & 1));
    }
    CHECK_THAT(check_slabs(heap->full) == 0);
    lock_drop(&heap->lock);
}

void heap_check_lists(void)
{
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next) {
        lock_take(&heap->lock);
        check_links_of_heap(heap);
        lock_drop(&heap->lock);
    }
}
