/* region.h - the one address range from which all memory of the allocator comes, and its records.
 *
 * The range is not reserved. Its base is drawn at random in a window far from the addresses that
 * the kernel uses. At first nothing is mapped. The region then grows upwards in adjacent pieces, so
 * that a limit on address space (ulimit -v) counts only what the region uses. A chunk that overlaps
 * a foreign mapping is skipped forever.
 *
 * The region consists of slices of 16 KiB; 128 slices are a chunk of 2 MiB. At a fixed distance
 * below the slices lie their records, and below these the records of the chunks. The records are
 * packed. Headers within the slices would compete for a few sets of the processor's cache: a walk
 * over addresses 64 KiB apart takes ten times as long as a walk over packed records.
 *
 *     base - REGION_SLICE_SPAN - REGION_CHUNK_SPAN: chunk records, 64 bytes each
 *     base - REGION_SLICE_SPAN:                     slice records, 64 bytes each
 *     base:                                         slice 0, slice 1, ...
 *
 * Always true:
 *
 *     slices % 128 == 0, and `slices` never decreases
 *     every record of a slice or chunk below `slices` is mapped, and zero until it is written
 *     every slice below `slices` is mapped, or lies in a chunk that region_grow() skipped or in a
 *     gap that region_grow_aligned() left, or is a slice that the kernel has unmapped (RUN_LOST)
 *     slice 0 is never used: index 0 means "none"
 *     region_index(p) >= slices for every address p outside the region
 *
 * region_grow() and region_grow_aligned() are called under the page heap's lock. Any thread may
 * call the other functions, unless their comment says otherwise.
 */
#ifndef CAIRN_ALLOC_REGION_H
#define CAIRN_ALLOC_REGION_H

#include "base/base.h"

#include <stdatomic.h>

enum {
    SLICE_SHIFT = 14,
    SLICE_BYTES = 1 << SLICE_SHIFT,
    CHUNK_SLICES = 128,
    CHUNK_BYTES = CHUNK_SLICES * SLICE_BYTES,
    RECORD_BYTES = 64, /* of a slice or a chunk: one cache line */
    REGION_SLICES_MAX = 1 << 24,
};

#define REGION_SLICE_SPAN ((uintptr_t)REGION_SLICES_MAX * RECORD_BYTES)
#define REGION_CHUNK_SPAN ((uintptr_t)REGION_SLICES_MAX / CHUNK_SLICES * RECORD_BYTES)

/* In the hardened build, the map of block_map.h lies below the chunk records: it begins
 * REGION_MAP_DISTANCE bytes below the base, and has a byte for each REGION_MAP_UNIT bytes. */
#define REGION_MAP_UNIT     16
#define REGION_MAP_SPAN     ((uintptr_t)REGION_SLICES_MAX * SLICE_BYTES / REGION_MAP_UNIT)
#define REGION_MAP_DISTANCE (REGION_SLICE_SPAN + REGION_CHUNK_SPAN + REGION_MAP_SPAN)

struct region {
    uintptr_t base;        /* address of slice 0; 0 before the first growth */
    uintptr_t records;     /* address of the record of slice 0 */
    _Atomic size_t slices; /* slices up to the end; 0 before the first growth */
};
extern struct region region __attribute__((visibility("hidden")));

/* Returns the index of the slice in which `p` lies. For an address outside the region, this is
 * `slices` or more. */
static inline size_t region_index(const void *p)
{
    return ((uintptr_t)p - region.base) >> SLICE_SHIFT;
}

/* Returns whether the record of slice `index` may be read. The index may come from any address:
 * NULL and addresses below the region wrap to a large index. A relaxed read suffices, because
 * `slices` was above the index of a slice before the slice was handed out. */
static inline bool region_has(size_t index)
{
    return index < PEEK(region.slices);
}

/* Returns the record of a slice: a struct slab (slab.h). */
static inline void *region_record(size_t index)
{
    return (void *)(region.records + index * RECORD_BYTES);
}

static inline size_t region_record_index(const void *record)
{
    return ((uintptr_t)record - region.records) / RECORD_BYTES;
}

/* Returns the record of a chunk: a struct chunk (chunk.h). */
static inline void *region_chunk_record(size_t chunk)
{
    return (void *)(region.base - REGION_SLICE_SPAN - REGION_CHUNK_SPAN + chunk * RECORD_BYTES);
}

static inline void *region_address(size_t index)
{
    return (void *)(region.base + (index << SLICE_SHIFT));
}

/* Maps at least `chunks` more adjacent chunks, in a gap or at the end of the region. They are
 * untouched and read as zero. Returns the number of the first new chunk, and sets `*got` to the
 * number of new chunks. If the machine refuses memory or the region is full, returns 0 and sets
 * `*got` to 0. The first growth returns 0, the number of the first chunk, and sets `*got` above 0.
 * The caller must never use slice 0. */
size_t region_grow(size_t chunks, size_t *got);

/* Maps `chunks` more chunks behind the end of the region, at an address that is a multiple of
 * `unit` slices, a power of two of at least CHUNK_SLICES. Returns the index of the first slice, or
 * 0 if the machine refuses memory or the region is full. The slices in between become a gap, which
 * counts as skipped. region_grow() maps chunks in gaps before it extends the region. The region
 * must not be empty. */
size_t region_grow_aligned(size_t chunks, size_t unit);

/* Returns the bytes of address space that are mapped for records, and for the block map of the
 * hardened build. The caller holds the page heap's
 * lock. */
size_t region_record_bytes(void);

/* Asserts the contract. */
void region_check(void);

#endif
