/* batch.h - blocks of other owners that a thread freed and has not posted yet.
 *
 * A free of another owner's block is a post to the slab of the block (remote.h): an atomic
 * instruction on a cache line that the owner uses, too. A thread therefore gathers the blocks of
 * a slab, and posts them together. Each heap has BATCHES batches, which only the heap's thread
 * changes. The place of a batch follows from the address of the slab's record. To everyone else,
 * the blocks of a batch are live blocks that the thread has not freed yet. They are linked and
 * marked as free, so that a second free of one of them is noticed. A batch is posted when
 *
 *     it has BATCH_BLOCKS blocks or BATCH_BYTES bytes
 *     its place is needed for another slab
 *     the thread needs a slab, or a run of the page heap; collects; or ends
 *
 * So a thread that sleeps keeps at most BATCHES × BATCH_BYTES bytes of freed blocks, and at most
 * BATCHES slabs, each of one slice. Blocks of longer slabs and of shared heaps are posted at once.
 * If a block of a shared heap were in a batch, heap_destroy() could free its slab meanwhile.
 *
 * The word of a batch has four parts, from the lowest bits up: the offset of the first block in the
 * slab, the offset of the last block, the number of blocks, and a number that becomes negative when
 * the batch is full. The word changes in one store, so that a signal handler never finds half of a
 * change.
 */
#ifndef CAIRN_ALLOC_BATCH_H
#define CAIRN_ALLOC_BATCH_H

#include "alloc/slab.h"

enum {
    BATCHES = 64,
    BATCH_BLOCKS = 64,
    BATCH_BYTES = 8192,

    /* Positions of the parts of `word`, in bits. Each part has 16 bits, and the first is at 0. */
    BATCH_LAST_SHIFT = 16,
    BATCH_COUNT_SHIFT = 32,
    BATCH_FULL_SHIFT = 48,
};

/* Only the heap's thread writes the fields. Other threads read them for statistics. */
struct batch {
    _Atomic(struct slab *) slab; /* NULL: the batch is empty */
    _Atomic uint64_t word;
};

/* Returns the number of blocks of this class at which a batch is posted. */
static inline uint32_t batch_most(unsigned class)
{
    size_t most = BATCH_BYTES / size_class_bytes(class);
    return most < BATCH_BLOCKS ? (uint32_t)most : BATCH_BLOCKS;
}

/* Returns the word of a batch of one block. */
static inline uint64_t batch_word(unsigned class, size_t offset)
{
    uint64_t until_full = (UINT64_C(1) << 15) - batch_most(class) + 1;
    return until_full << BATCH_FULL_SHIFT | UINT64_C(1) << BATCH_COUNT_SHIFT |
           (uint64_t)offset << BATCH_LAST_SHIFT | offset;
}

static inline size_t batch_first(uint64_t word)
{
    return (uint16_t)word;
}

static inline size_t batch_last(uint64_t word)
{
    return (uint16_t)(word >> BATCH_LAST_SHIFT);
}

static inline uint32_t batch_count(uint64_t word)
{
    return (uint16_t)(word >> BATCH_COUNT_SHIFT);
}

/* Returns the place where a batch of the slab is, among the BATCHES batches of a heap. */
static inline struct batch *batch_of(struct batch *batches, const struct slab *slab)
{
    enum { STRIDE = sizeof(struct batch) };
    return (struct batch *)((char *)batches +
                            ((uintptr_t)slab / (RECORD_BYTES / STRIDE) & (BATCHES - 1) * STRIDE));
}

/* (owner only) Returns whether the batch holds blocks of this slab. */
static inline bool batch_is_of(const struct batch *batch, const struct slab *slab)
{
    return PEEK(batch->slab) == slab;
}

/* (owner only) Adds a block to a batch of its slab. The block begins `offset` bytes behind the
 * slab's start, and `last` == slab_key(block, NULL). Returns false if the batch is full now. */
static inline bool batch_add(struct batch *batch, struct block *block, size_t offset,
                             uintptr_t last)
{
    uint64_t word = atomic_load_explicit(&batch->word, memory_order_relaxed);
    uint64_t behind = offset - batch_first(word);
    slab_mark_by(block, (struct block *)((char *)block - behind), last);
    slab_interrupt_here(); /* marked before it is in the batch */
    word += behind + (UINT64_C(1) << BATCH_COUNT_SHIFT) + (UINT64_C(1) << BATCH_FULL_SHIFT);
    atomic_store_explicit(&batch->word, word, memory_order_relaxed);
    return (int64_t)word >= 0;
}

#endif
