/* large.h - a large block is a run of slices of its own.
 *
 * A block is large if it has more than SIZE_CLASS_BYTES_MAX bytes, or if it needs a larger
 * alignment than slabs have. The record of the first slice has the kind RUN_LARGE and the number of
 * slices. Its owner is NULL, a shared heap (shared_heap.h), or the mark of site_keeps(). None of
 * these is a thread's heap, so that the fast path of free leaves a large block to the slow path.
 * Any thread may free any large block.
 */
#ifndef CAIRN_ALLOC_LARGE_H
#define CAIRN_ALLOC_LARGE_H

#include "alloc/run_cache.h"

/* Returns whether a size or an alignment is larger than any region. A value that is as large as a
 * region is not possible either, but fails later. */
static inline bool large_is_impossible(size_t bytes)
{
    return bytes > (size_t)REGION_SLICES_MAX << SLICE_SHIFT;
}

/* Returns a block of at least `size` bytes at a multiple of `alignment`, a power of two. `*zero` is
 * set to true if the whole block reads as zero. Returns NULL if there is no memory, or if the size
 * or the alignment is larger than the region. */
void *large_allocate(size_t size, size_t alignment, bool *zero);

/* Returns a block of at least `size` bytes, above SIZE_CLASS_BYTES_MAX, that the program is
 * expected to grow. If possible, free slices of the same total length follow the block. A block
 * that grows step by step then moves only when its length has doubled. */
void *large_allocate_to_grow(size_t size);

/* Says whether pages may be moved with mremap(), for which a sandbox may kill the process. NULL
 * means that they may. Set before the program has a second thread. */
extern bool (*large_may_move)(void) __attribute__((visibility("hidden")));

/* Moves the pages of a block to a new place with room for `size` bytes and for more growth. `size`
 * is larger than the block, and the block belongs to no heap. Returns the new block. Returns NULL
 * if nothing changed; the caller may then copy the block. */
void *large_move(struct slab *slab, size_t size);

/* Turns a run that run_cache.h kept into a block again, and returns the block. `slack` is the
 * number of its slices that the program did not request. */
void *large_reuse(struct slab *run, size_t slack);

/* Gives back the run of a block, or a run that run_cache.h kept. `slab` is the record of its first
 * slice. */
void large_free(struct slab *slab);

static inline size_t large_slices(size_t size)
{
    return (size + SLICE_BYTES - 1) >> SLICE_SHIFT;
}

/* Resizes the block in place to hold `size` bytes. A block that grows takes free slices behind it.
 * A block that shrinks gives its last slices back, but keeps up to `slack` slices that the program
 * never requested. Returns false if there is no room; the block is then unchanged. */
bool large_resize(struct slab *slab, size_t size);

static inline size_t large_bytes(const struct slab *slab)
{
    return (size_t)slab->slices << SLICE_SHIFT;
}

#endif
