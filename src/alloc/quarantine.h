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
 *     every block here is BLOCK_QUARANTINED in block_map.h, and reads as zero up to its canary
 *     no block here belongs to a shared heap, which could be destroyed meanwhile
 *
 * A signal handler may interrupt a function here and call another one. A block that it frees then
 * stays out of use.
 */
#ifndef CAIRN_ALLOC_QUARANTINE_H
#define CAIRN_ALLOC_QUARANTINE_H

#include "alloc/heap.h"

enum {
    QUARANTINE_BLOCKS = 128,       /* a power of two */
    QUARANTINE_BYTES = 128 << 10,  /* of small blocks */
    QUARANTINE_LARGE = 8,          /* large blocks */
    QUARANTINE_LARGE_SLICES = 128, /* 2 MiB */
};

struct quarantine {
    struct random random;
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

/* (owner only) Takes over a small block that the program has freed, of any heap. */
void quarantine_put(struct heap *heap, struct slab *slab, struct block *block);

/* (owner only) Takes over a large block that the program has freed and that belongs to no heap.
 * Returns false if it is too long; the caller then frees its run. */
bool quarantine_put_large(struct heap *heap, struct slab *slab);

/* Gives a small block that the program has freed back to its slab. `heap` is the calling thread's
 * heap, or any other if it has none. */
void quarantine_release(struct heap *heap, struct slab *slab, struct block *block);

/* (owner only) Gives all blocks back. */
void quarantine_drain(struct heap *heap);

#endif
