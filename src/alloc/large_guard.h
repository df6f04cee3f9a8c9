/* large_guard.h - what the hardened build does with a large block: guards before and behind it, and
 * memory that reads as zero when it is free (hardening.h).
 *
 *     run:  | guard: one OS page | the block | filled up to an OS page | guard: the rest |
 *
 * No one can access a guard (os_guard()). The guard before the block is missing if the block has a
 * larger alignment than an OS page, or if an OS page is as large as a slice. The bytes between the
 * block and the guard behind it hold HARDENING_FILL. Two fields of the block's record, which only
 * slabs need otherwise, describe the block: `posted` is the number of requested bytes, and `until`
 * the distance of the block from the start of its run.
 *
 * The block belongs to the caller of every function.
 */
#ifndef CAIRN_ALLOC_LARGE_GUARD_H
#define CAIRN_ALLOC_LARGE_GUARD_H

#include "alloc/slab.h"

/* Returns the bytes that must be allocated for a large block, so that there is room for its guards.
 * Returns SIZE_MAX if that overflows. */
size_t large_guard_room(size_t size, size_t alignment);

/* Makes the run a block of `size` bytes between its guards, and returns the block. The room was
 * computed for the same alignment. */
void *large_guard_set(struct slab *slab, size_t size, size_t alignment);

/* Returns the number of requested bytes. */
static inline size_t large_guard_size(const struct slab *slab)
{
    return (size_t)atomic_load_explicit(&slab->posted, memory_order_relaxed);
}

/* Returns the block. */
static inline void *large_guard_block(const struct slab *slab)
{
    return slab_start(slab) + atomic_load_explicit(&slab->until, memory_order_relaxed);
}

/* Returns an alignment for which large_guard_set() places a block as far from the start of its run
 * as this block is. */
size_t large_guard_alignment(const struct slab *slab);

/* Returns whether the bytes between the block and the guard behind it are unchanged. */
bool large_guard_holds(const struct slab *slab);

/* Removes both guards. The whole run except the block then reads as zero. */
void large_guard_remove(struct slab *slab);

/* Makes the block read as zero. */
void large_guard_wipe(struct slab *slab);

#endif
