/* heap_trim.h - gives back what a heap keeps and has not used for an epoch.
 *
 * The page heap gives back the runs that are not in use (purge.h). A heap keeps more than that:
 * slabs with few live blocks, one empty slab of each class, runs, and lists of free blocks. Only
 * the heap's own thread may touch these. So it looks at them itself, at most once in each epoch of
 * purge.h: when it reaches a slow path and there may be something to give back. That is so if the
 * last look left something for the next one, or if more than HEAP_TRIM_SLICES slices were parked
 * since. A parked slab counts again when an eighth of its blocks, at least one, were freed after a
 * look (slab.h). A slab no longer counts when it is used again, or when all its blocks are free. A
 * block that another thread frees does not count.
 *
 * A parked slab is trimmed (slab_trim.h) if
 *
 *     its number of live blocks was about the same at the last look, an epoch before, and
 *     it is not among the first N slabs of its class, where N is the number of slabs that the class
 *     used again in the last epochs (these slabs are used next), and
 *     there was much to give back at the last look, or the thread allocates rarely
 *
 * After the third look in a row that gave back little, the heap waits before it looks again: first
 * for 1 epoch, then for 3, 7, … 63 epochs. An epoch counts if the thread makes a detour after it
 * (detour.h): because there may be something to give back, or because of one of the thread's next
 * 256 refills. A thread that allocates rarely does not wait.
 */
#ifndef CAIRN_ALLOC_HEAP_TRIM_H
#define CAIRN_ALLOC_HEAP_TRIM_H

#include "alloc/heap.h"

/* (owner only) Looks at the heap, if an epoch has ended since the last look. If `is_quiet`, which
 * says that the thread allocates rarely, also gives back all runs, lists of free blocks and empty
 * slabs that the heap keeps. The caller holds no lock, and lock_is_unsafe() is false. */
void heap_trim(struct heap *heap, bool is_quiet);

/* (owner only) Gives back all pages of parked slabs on which no block is live. The caller holds no
 * lock, and lock_is_unsafe() is false. */
void heap_trim_all(struct heap *heap);

/* Does the same for the heaps of threads that have ended. The caller holds no lock, and
 * lock_is_unsafe() is false. */
void heap_trim_ended(void);

#endif
