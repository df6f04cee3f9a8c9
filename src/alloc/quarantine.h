/* quarantine.h - blocks that the program has freed, and that no call hands out yet. Only the
 * hardened build has quarantines (hardening.h).
 *
 * The quarantine of a heap lies behind the heap. Only the heap's owner uses it (heap.h). Small
 * blocks wait in QUARANTINE_BLOCKS places. A new block takes a random place, and the block that was
 * there goes back to its slab. So the program cannot foresee when a block is handed out again.
 * Large blocks wait in a queue. Between calls, always:
 *
 *     bytes == sum of the sizes of the small blocks, and at most QUARANTINE_BYTES
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
    QUARANTINE_BLOCKS = 128,       /* a power of two */
    QUARANTINE_BYTES = 128 << 10,  /* of small blocks */
    QUARANTINE_LARGE = 8,          /* large blocks */
    QUARANTINE_LARGE_SLICES = 128, /* 2 MiB */
};

struct quarantine {
    uint64_t random; /* see quarantine_place() */
    struct large_budget large_budget;
    bool is_busy; /* a function below is changing the quarantine */
    uint32_t bytes;
    uint32_t next_place; /* emptied next if there are too many bytes */
    struct block *blocks[QUARANTINE_BLOCKS];
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

/* Returns the next random place: the high bits of a linear congruential generator (Knuth, "The Art
 * of Computer Programming", volume 2), whose state no one else knows. */
static inline uint32_t quarantine_place(struct quarantine *quarantine)
{
    uint64_t next = quarantine->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    quarantine->random = next;
    return (uint32_t)(next >> 32) / (uint32_t)((UINT64_C(1) << 32) / QUARANTINE_BLOCKS);
}

/* Called when the first block arrives. Makes the next random places depend on the kernel's random
 * numbers. */
void quarantine_stir(struct quarantine *quarantine);

/* Slow path of quarantine_release() for a block of another owner. */
void quarantine_post(struct slab *slab, struct block *block, uintptr_t last);

/* Gives a small block that the program has freed back to its slab. `heap` is the calling thread's
 * heap, or any other if it has none. */
static inline void quarantine_release(struct heap *heap, struct slab *slab, struct block *block)
{
    if (UNLIKELY(block->next != NULL || block->key != 0))
        slab_misused("a block was written to after it was freed", block);
    uintptr_t last = slab_key(block, NULL);
    block_map_set(block, BLOCK_FREE);
    if (LIKELY(atomic_load_explicit(&slab->owner, memory_order_relaxed) == heap))
        heap_free(heap, slab, block, last);
    else
        quarantine_post(slab, block, last);
}

/* (owner only) Empties places until the blocks have at most QUARANTINE_BYTES bytes, but not the
 * place `kept`. */
void quarantine_shrink(struct heap *heap, uint32_t kept);

/* (owner only) Takes over a small block of `bytes` bytes that the program has freed, of any
 * heap. */
static inline void quarantine_put(struct heap *heap, struct block *block, size_t bytes)
{
    struct quarantine *quarantine = quarantine_of(heap);
    uint32_t place = quarantine_place(quarantine);
    if (UNLIKELY(quarantine->is_busy))
        return; /* the block stays out of use */
    quarantine->is_busy = true;
    atomic_signal_fence(memory_order_seq_cst);
    struct block *before = quarantine->blocks[place];
    quarantine->blocks[place] = block;
    quarantine->bytes += (uint32_t)bytes;
    if (LIKELY(before != NULL)) {
        struct slab *slab = slab_of(before);
        quarantine->bytes -= (uint32_t)size_class_bytes(slab->class);
        quarantine_release(heap, slab, before);
    } else if (quarantine->bytes == bytes) {
        quarantine_stir(quarantine);
    }
    if (UNLIKELY(quarantine->bytes > QUARANTINE_BYTES))
        quarantine_shrink(heap, place);
    atomic_signal_fence(memory_order_seq_cst);
    quarantine->is_busy = false;
}

/* (owner only) Takes over a large block that the program has freed and that belongs to no heap.
 * Returns false if it is too long; the caller then frees its run. */
bool quarantine_put_large(struct heap *heap, struct slab *slab);

/* (owner only) Gives all blocks back. */
void quarantine_drain(struct heap *heap);

#endif
