#include "alloc/quarantine.h"

#include "alloc/block_map.h"
#include "alloc/large_guard.h"
#include "os/os.h"

#include <string.h>

void quarantine_seed(struct quarantine *quarantine)
{
    if (quarantine->is_seeded)
        return;
    quarantine->is_seeded = true;
    quarantine->random ^= os_random() ^ (uintptr_t)quarantine;
}

void quarantine_post(struct slab *slab, struct block *block, uintptr_t last)
{
    if (!remote_post_quick(slab, block, (size_t)((char *)block - slab_start(slab)), last))
        heap_post(slab, block);
}

/* Returns false if this thread, or the thread that a signal handler has interrupted, is already
 * changing the quarantine. If the result is true, the caller may change the quarantine until it
 * calls leave(). */
static bool enter(struct quarantine *quarantine)
{
    if (UNLIKELY(quarantine->is_busy))
        return false;
    quarantine->is_busy = true;
    atomic_signal_fence(memory_order_seq_cst);
    return true;
}

static void leave(struct quarantine *quarantine)
{
    atomic_signal_fence(memory_order_seq_cst);
    quarantine->is_busy = false;
}

/* Empties a place. */
static void evict(struct heap *heap, struct quarantine *quarantine, uint32_t place)
{
    struct block *block = quarantine->blocks[place];
    if (block == NULL)
        return;
    quarantine->blocks[place] = NULL;
    quarantine_release(heap, slab_of(block), block);
}

static void release_large(struct heap *heap, struct slab *slab)
{
    block_map_set(large_guard_block(slab), BLOCK_FREE);
    if (!run_cache_put(&heap->runs, slab) && !run_cache_put_long(&heap->runs, slab))
        heap_free_large(heap, slab);
}

static void evict_large(struct heap *heap, struct quarantine *quarantine)
{
    struct slab *slab = slab_at(quarantine->large[0]);
    quarantine->large_count--;
    quarantine->large_slices -= slab->slices;
    memmove(quarantine->large, quarantine->large + 1,
            quarantine->large_count * sizeof quarantine->large[0]);
    release_large(heap, slab);
}

bool quarantine_put_large(struct heap *heap, struct slab *slab)
{
    struct quarantine *quarantine = quarantine_of(heap);
    uint32_t slices = slab->slices;
    if (slices > QUARANTINE_LARGE_SLICES)
        return false;
    if (!enter(quarantine))
        return true; /* in a signal handler: the block stays out of use */
    while (quarantine->large_count == QUARANTINE_LARGE ||
           quarantine->large_slices + slices > QUARANTINE_LARGE_SLICES)
        evict_large(heap, quarantine);
    quarantine->large[quarantine->large_count++] = (uint32_t)slab_index(slab);
    quarantine->large_slices += slices;
    leave(quarantine);
    return true;
}

void quarantine_drain(struct heap *heap)
{
    struct quarantine *quarantine = quarantine_of(heap);
    if (!enter(quarantine))
        return;
    for (uint32_t place = 0; place < QUARANTINE_PLACES; place++)
        evict(heap, quarantine, place);
    while (quarantine->large_count > 0)
        evict_large(heap, quarantine);
    leave(quarantine);
}
