/* region.h - the one range of addresses that all our memory comes from, and the records beside it.
 *
 * The range is claimed by convention and mapped by piece: its place is drawn at random in a window far from where the
 * kernel puts things, nothing is mapped at first, and it grows upwards in adjacent pieces, so that an address-space
 * limit takes no more than what is used. A piece that somebody else occupies is skipped for ever.
 *
 * It is divided into slices of 16 KiB, 128 of which are a chunk of 2 MiB. Below the slices, at a fixed distance, lie
 * their records, packed (headers within the slices would share few cache sets: a walk over 64 KiB strides costs ten
 * times that over packed ones), and below these the records of the chunks:
 *
 *     base - CHUNK_SPAN - SLICE_SPAN      base - SLICE_SPAN          base
 *     | chunk records, 64 bytes each ...  | slice records, 64 each ... | slice 0, slice 1, ...
 *
 * Always true:
 *
 *     `slices` is a multiple of 128 and only grows; every record below it is mapped, and zero until somebody writes it
 *     a slice below it is mapped, or lies in a chunk that region_grow() skipped
 *     slice 0 belongs to nobody: index 0 means "none"
 *     an address that is not of the region has an index of `slices` or more
 *
 * region_grow() is called under the page heap's lock; all else by anyone.
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
    RECORD_BYTES = 64, /* of a slice, and of a chunk: one cache line */
    REGION_SLICES_MAX = 1 << 24,
};

#define REGION_SLICE_SPAN ((uintptr_t)REGION_SLICES_MAX * RECORD_BYTES)
#define REGION_CHUNK_SPAN ((uintptr_t)REGION_SLICES_MAX / CHUNK_SLICES * RECORD_BYTES)

struct region {
    uintptr_t base;        /* address of slice 0; 0 before the first growth */
    _Atomic size_t slices; /* so many may be looked up; 0 before the first growth */
};
extern struct region region __attribute__((visibility("hidden")));

/* The index of the slice that `p` lies in; REGION_SLICES_MAX or more, or at least `slices`, when it is none of ours. */
static inline size_t region_index(const void *p)
{
    return ((uintptr_t)p - region.base) >> SLICE_SHIFT;
}

/* Whether an index, however it came about, may be looked up. NULL and anything below the region wrap to a large one. */
static inline bool region_has(size_t index)
{
    return index < atomic_load_explicit(&region.slices,
                                        memory_order_relaxed); /* what was handed out is below it */
}

/* The record of a slice: 64 bytes, whose meaning is slab.h's and large.h's. */
static inline void *region_record(size_t index)
{
    return (void *)(region.base - REGION_SLICE_SPAN + index * RECORD_BYTES);
}

static inline size_t region_record_index(const void *record)
{
    return ((uintptr_t)record - (region.base - REGION_SLICE_SPAN)) / RECORD_BYTES;
}

/* The record of a chunk: 64 bytes, whose meaning is page_heap.h's. */
static inline void *region_chunk_record(size_t chunk)
{
    return (void *)(region.base - REGION_SLICE_SPAN - REGION_CHUNK_SPAN + chunk * RECORD_BYTES);
}

static inline void *region_address(size_t index)
{
    return (void *)(region.base + (index << SLICE_SHIFT));
}

/* Maps at least `chunks` adjacent chunks more, zeroed and untouched: the number of the first, and how many there are in
 * `*got`. 0 with `*got` 0 when the machine or a limit refuses; chunk 0 itself is returned once, and its slice 0 stays
 * out of use. */
size_t region_grow(size_t chunks, size_t *got);

/* Bytes of address space that the records have. Under the page heap's lock. */
size_t region_record_bytes(void);

/* Asserts the contract. */
void region_check(void);

#endif
