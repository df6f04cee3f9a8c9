/* shared_heap.h - a heap that is no thread's: whoever holds its turn is its owner.
 *
 * For heaps that a program makes itself, so that all of their blocks can be given back at once, and for what threads
 * allocate when they have no heap any more. Every call waits for its turn, so that any thread may make it. What is too
 * large for a slab hangs on the heap's list, and its record names the heap as its owner.
 *
 * Blocks are freed like all others: no thread's heap is their owner, so that they are posted (remote.h) or, when they are
 * large, taken off the list.
 */
#ifndef CAIRN_ALLOC_SHARED_HEAP_H
#define CAIRN_ALLOC_SHARED_HEAP_H

#include "alloc/heap.h"

/* NULL when the machine refuses. */
struct heap *shared_heap_create(void);

/* A block of at least `size` bytes at a multiple of `alignment`, a power of two; `*zero`: all of it reads as zero. NULL
 * when the machine refuses. A heap that was given up is the end of the program. */
void *shared_heap_allocate(struct heap *heap, size_t size, size_t alignment, bool *zero);

/* Frees whatever was allocated in it, and the heap. Nobody may use either any more. */
void shared_heap_destroy(struct heap *heap);

/* The heap is no more, and its blocks live on until each is freed. */
void shared_heap_release(struct heap *heap);

/* Asserts the contract of all such heaps. */
void shared_heap_check_all(void);

#endif
