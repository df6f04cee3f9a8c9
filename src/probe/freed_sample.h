/* freed_sample.h - a sample of freed blocks whose addresses were not handed out again yet.
 *
 * layout.c learns from it after how many operations, and by which thread, the memory of a freed
 * block is used again. The first granules of the blocks in the sample are hidden (handed_out.h), so
 * that the next allocation at such an address takes the probe's slow path. A block stays in the
 * sample until its address is handed out. Whether a block gets into the sample depends only on
 * whether the entry of its address is empty, so the sample is fair.
 *
 * The caller holds the lock of layout.c.
 */
#ifndef CAIRN_PROBE_FREED_SAMPLE_H
#define CAIRN_PROBE_FREED_SAMPLE_H

#include "base/base.h"

struct freed_block {
    uintptr_t block;     /* address; 0: no block */
    uint32_t operations; /* operations of the freeing thread until the free */
    uint32_t thread;     /* number of the freeing thread */
};

/* Returns whether the entry of this address is empty. */
bool freed_sample_has_room(uintptr_t block);

/* Adds a block. The entry of its address must be empty. */
void freed_sample_add(struct freed_block freed);

/* Returns the block at this address, or NULL if it is not in the sample. The caller takes the block
 * out by setting its address to 0. */
struct freed_block *freed_sample_find(uintptr_t block);

/* Hides the blocks of the sample that begin in [start, start + bytes) again. Called after
 * handed_out_show(), which has shown all granules of this memory. */
void freed_sample_hide(uintptr_t start, size_t bytes);

#endif
