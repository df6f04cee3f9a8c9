/* block_map.h - a byte for each 16 bytes of the region, which says whether a block begins there and
 * whether it is live. Only the hardened build has the map (hardening.h).
 *
 * The map lies far below the blocks, below the records of region.h, and grows with the region. Only
 * the thread to which a block belongs writes its byte: the thread that hands the block out, frees
 * it, or keeps it in quarantine. If two threads free one block at the same time, and neither owns
 * the block's slab, block_map_take() gives the block to one of them. If one of them owns the slab,
 * both may get the block, and quarantine_release() notices that. Always:
 *
 *     BLOCK_LIVE         the block is handed out
 *     BLOCK_QUARANTINED  the program has freed the block, which is not on a list yet
 *     BLOCK_FREE         the block is on a list or in a slab, and was handed out before
 *     BLOCK_NEW          the block was carved, and was never handed out
 *     BLOCK_NONE         no block begins there
 */
#ifndef CAIRN_ALLOC_BLOCK_MAP_H
#define CAIRN_ALLOC_BLOCK_MAP_H

#include "alloc/region.h"
#include "os/lock.h"

enum block_state { BLOCK_NONE, BLOCK_NEW, BLOCK_LIVE, BLOCK_QUARANTINED, BLOCK_FREE };

/* Returns the byte for an address in the region. */
static inline _Atomic uint8_t *block_map_at(const void *p)
{
    return (_Atomic uint8_t *)(region.base - REGION_MAP_DISTANCE +
                               ((uintptr_t)p - region.base) / REGION_MAP_UNIT);
}

static inline enum block_state block_map_state(const void *p)
{
    return (enum block_state)atomic_load_explicit(block_map_at(p), memory_order_relaxed);
}

static inline void block_map_set(const void *p, enum block_state state)
{
    atomic_store_explicit(block_map_at(p), (uint8_t)state, memory_order_relaxed);
}

/* Makes a live block BLOCK_QUARANTINED. Returns the previous state. If it was not BLOCK_LIVE, the
 * caller does not get the block. Called by the owner of the block's slab, which needs no atomic
 * exchange. */
static inline enum block_state block_map_take_own(const void *p)
{
    enum block_state before = block_map_state(p);
    block_map_set(p, BLOCK_QUARANTINED);
    return before;
}

/* Does the same as block_map_take_own(). Any thread may call this function. It exchanges the byte
 * within its word of 32 bits, because RISC-V has no exchange of a byte. */
static inline enum block_state block_map_take(const void *p)
{
    if (LOCK_IS_ALONE)
        return block_map_take_own(p);
    uintptr_t at = (uintptr_t)block_map_at(p), within = at % sizeof(uint32_t);
    _Atomic uint32_t *word = (_Atomic uint32_t *)(at - within);
    unsigned shift = 8 * (unsigned)within; /* the lowest byte comes first */
    uint32_t others = ~((uint32_t)UINT8_MAX << shift);
    uint32_t taken = (uint32_t)BLOCK_QUARANTINED << shift;
    uint32_t before = atomic_load_explicit(word, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(word, &before, (before & others) | taken,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    return (enum block_state)(before >> shift & UINT8_MAX);
}

/* Forgets all blocks between two addresses: from now on none is live there. */
void block_map_clear(const void *start, size_t bytes);

#endif
