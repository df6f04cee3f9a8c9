/* shared_heap.h - a heap that no single thread owns. The holder of its `turn` is its owner.
 *
 * The program makes such heaps by cairn_heap_create(), so that it can free all their blocks at
 * once. One more shared heap serves threads that have no heap any more (thread.h). Any thread may
 * call any function: the function takes the heap's turn, and may wait for it. A block that is too
 * large for a slab is on the heap's list `large`, and its record names the heap as its owner.
 *
 * Blocks are freed like all others. Since the owner is never the heap of a thread, a small block is
 * posted (remote.h), and a large one is taken off the list.
 */
#ifndef CAIRN_ALLOC_SHARED_HEAP_H
#define CAIRN_ALLOC_SHARED_HEAP_H

#include "alloc/heap.h"

/* Returns NULL if there is no memory. */
struct heap *shared_heap_create(void);

/* Returns a block of at least `size` bytes at a multiple of `alignment`, a power of two. Sets
 * `*zero` to true if the whole block reads as zero. Returns NULL if there is no memory. Ends the
 * program if the heap was given up. */
void *shared_heap_allocate(struct heap *heap, size_t size, size_t alignment, bool *zero);

/* Frees all blocks of the heap, and gives the heap up. No thread may use the heap or its blocks
 * after that. */
void shared_heap_destroy(struct heap *heap);

/* Gives the heap up. Its blocks live on until each is freed. */
void shared_heap_release(struct heap *heap);

/* Asserts the contract of all shared heaps. */
void shared_heap_check_all(void);

#endif
