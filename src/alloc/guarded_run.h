/* guarded_run.h - runs of slices with a guard behind them, or around them, in the hardened build.
 *
 * A guard is a slice that no one can access (os_guard()). It ends a linear overflow that began in a
 * slab, and separates the memory of the allocator itself from that of the program. A guard stays
 * forever, and takes addresses but no memory. The plain build sets none.
 */
#ifndef CAIRN_ALLOC_GUARDED_RUN_H
#define CAIRN_ALLOC_GUARDED_RUN_H

#include "alloc/page_heap.h"

/* Like page_heap_allocate() with 0 for `room`, for a slab. Every GUARDED_RUN_EVERY-th run is
 * followed by a guard. The share of guards is limited: one in 32 slices of the first 40 MiB of the
 * region, and one in 2,048 slices (16 chunks) beyond, because the kernel gives no huge page to a
 * chunk with a guard. */
enum { GUARDED_RUN_EVERY = 8 };
size_t guarded_run_for_slab(size_t slices, bool *zero);

/* Like page_heap_allocate() with 0 for `room`, for the allocator's own memory. The run lies between
 * two guards. */
size_t guarded_run_for_us(size_t slices, bool *zero);

#endif
