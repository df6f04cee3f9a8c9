/* quarantine.h - keeps blocks for a while after the program has freed them, before they are handed
 * out again. Only the hardened build has quarantines (hardening.h).
 *
 * The quarantine of a heap lies behind the heap. Only the heap's owner uses it (heap.h). Small
 * blocks wait in QUARANTINE_PLACES places: 32 places for blocks of up to 512 bytes, 8 for blocks of
 * up to 4 KiB, and 4 for larger ones. Together these blocks have at most 176 KiB. A new block takes
 * a random place of its kind, and the block that was there goes back to its slab. So the program
 * cannot foresee when a block is handed out again. Large blocks wait in a queue. Between calls,
 * always:
 *
 *     large_slices == sum of the lengths of the large blocks, and at most QUARANTINE_LARGE_SLICES
 *     every block here is BLOCK_QUARANTINED in block_map.h
 *     a small block here reads as zero, except for its canary
 *     no block here belongs to a shared heap, which could be destroyed meanwhile
 *
 * A signal handler may interrupt a function here and call another one. A block that it frees then
 * stays out of use.
 */
#ifndef CAIRN_ALLOC_QUARANTINE_H
#define CAIRN_ALLOC_QUARANTINE_H

#include "alloc/block_map.h"
#include "alloc/heap.h"
#include "alloc/large_guard.h"

enum {
    QUARANTINE_SHORT = 32, /* places for blocks of up to 512 bytes */
    QUARANTINE_SHORT_CLASS_MAX = 23,
    QUARANTINE_MEDIUM = 8, /* places for blocks of up to 4 KiB */
    QUARANTINE_MEDIUM_CLASS_MAX = 47,
    QUARANTINE_LONG = 4, /* places for small blocks above 4 KiB */
    QUARANTINE_PLACES = QUARANTINE_SHORT + QUARANTINE_MEDIUM + QUARANTINE_LONG,
    QUARANTINE_LARGE = 8,          /* places for large blocks */
    QUARANTINE_LARGE_SLICES = 128, /* all large blocks together: 2 MiB */
};

struct quarantine {
    uint64_t random; /* see quarantine_place() */
    struct large_budget large_budget;
    bool is_busy;   /* a function below is changing the quarantine */
    bool is_seeded; /* quarantine_seed() was called */
    struct block *blocks[QUARANTINE_PLACES];
    uint32_t large_slices;
    uint32_t large_count;
    uint32_t large[QUARANTINE_LARGE]; /* slice indices, oldest first */
};
_Static_assert(!CAIRN_HARDENED || sizeof(struct quarantine) <= HEAP_QUARANTINE_BYTES,
               "a heap has room for its quarantine");

static inline struct quarantine *quarantine_of(struct heap *heap)
{
    return (struct quarantine *)(heap + 1);
}

/* Returns a random place for a block of a class. The place depends on the high bits of a linear
 * congruential generator (Knuth, "The Art of Computer Programming", volume 2), whose state no one
 * else knows. */
static inline uint32_t quarantine_place(struct quarantine *quarantine, unsigned class)
{
    uint64_t next = quarantine->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    quarantine->random = next;
    uint64_t high = next >> 32;
    if (LIKELY(class <= QUARANTINE_SHORT_CLASS_MAX))
        return (uint32_t)(high * QUARANTINE_SHORT >> 32);
    if (class <= QUARANTINE_MEDIUM_CLASS_MAX)
        return QUARANTINE_SHORT + (uint32_t)(high * QUARANTINE_MEDIUM >> 32);
    return QUARANTINE_SHORT + QUARANTINE_MEDIUM + (uint32_t)(high * QUARANTINE_LONG >> 32);
}

/* Called when a block takes an empty place. The first call makes the next random places depend on
 * the kernel's random numbers. */
void quarantine_seed(struct quarantine *quarantine) __attribute__((cold));

/* Slow path of quarantine_release() for a block of another owner. */
void quarantine_post(struct slab *slab, struct block *block, uintptr_t last);

/* Gives a small block that the program has freed back to its slab. `heap` is the calling thread's
 * heap, or any other if it has none. */
static inline __attribute__((always_inline)) void
quarantine_release(struct heap *heap, struct slab *slab, struct block *block)
{
    if (UNLIKELY(((uintptr_t)block->next | block->key) != 0))
        slab_misused("a block was written to after it was freed", block);
    /* Two threads that freed the block at the same time may both have put it into quarantine. */
    if (UNLIKELY(block_map_state(block) != BLOCK_QUARANTINED))
        slab_misused("a block was freed twice", block);
    uintptr_t last = slab_key(block, NULL);
    block_map_set(block, BLOCK_FREE);
    if (LIKELY(atomic_load_explicit(&slab->owner, memory_order_relaxed) == heap))
        heap_free(heap, slab, block, last);
    else
        quarantine_post(slab, block, last);
}

/* (owner only) Takes over a small block of a class, of any heap, that the program has freed. */
static inline __attribute__((always_inline)) void
quarantine_put(struct heap *heap, struct block *block, unsigned class)
{
    struct quarantine *quarantine = quarantine_of(heap);
    if (UNLIKELY(quarantine->is_busy))
        return; /* in a signal handler: the block stays out of use */
    quarantine->is_busy = true;
    atomic_signal_fence(memory_order_seq_cst);
    struct block **place = &quarantine->blocks[quarantine_place(quarantine, class)];
    struct block *before = *place;
    *place = block;
    if (LIKELY(before != NULL))
        quarantine_release(heap, slab_of(before), before);
    else
        quarantine_seed(quarantine);
    atomic_signal_fence(memory_order_seq_cst);
    quarantine->is_busy = false;
}

/* (owner only) Takes over a large block that the program has freed and that belongs to no heap.
 * Returns false if it is too long; the caller then frees its run. */
bool quarantine_put_large(struct heap *heap, struct slab *slab);

/* (owner only) Gives all blocks back. */
void quarantine_drain(struct heap *heap);

#endif
