/* large.h - blocks that are a run of slices each: above SIZE_CLASS_BYTES_MAX, or aligned to more than a slab can.
 *
 * The record of the first slice says RUN_LARGE and how many there are. Its owner is NULL, a heap that is no thread's
 * (shared_heap.h), or site_keeps() it, so that the fast path of free leaves through its cold door. Any thread may give any back.
 */
#ifndef CAIRN_ALLOC_LARGE_H
#define CAIRN_ALLOC_LARGE_H

#include "alloc/run_cache.h"

/* At least `size` bytes at a multiple of `alignment`, a power of two. `*zero`: all of it reads as zero. NULL when the
 * machine refuses, or the sum overflows. */
void *large_allocate(size_t size, size_t alignment, bool *zero);

/* At least `size` bytes, above SIZE_CLASS_BYTES_MAX, that will be asked to grow: where it can be, as much again is free
 * behind them, so that a block that grows step by step is moved once per doubling. */
void *large_allocate_to_grow(size_t size);

/* Moves the pages of a block to where `size` bytes fit, more than it has, and to where it can be asked to grow again. It must
 * belong to no heap. NULL: nothing changed, and copying may do. */
void *large_move(struct slab *slab, size_t size);

/* What run_cache.h kept is a block again, that asked for so many slices less. */
void *large_reuse(struct slab *run, size_t slack);

/* `slab` is the record of the block's first slice, or of a run that run_cache.h kept. */
void large_free(struct slab *slab);

static inline size_t large_slices(size_t size)
{
    return (size + SLICE_BYTES - 1) >> SLICE_SHIFT;
}

/* Makes the block hold `size` bytes without moving it, and gives back what it no longer needs, less what it never asked for; false: it
 * stays as it is. */
bool large_resize(struct slab *slab, size_t size);

static inline size_t large_bytes(const struct slab *slab)
{
    return (size_t)slab->slices << SLICE_SHIFT;
}

#endif
