/* hardened.h - the functions of alloc/alloc.h with the checks of the hardened build.
 *
 * They stand between the public names (src/abi) and the allocator (src/alloc), which allocates a
 * little more than the program requests. alloc/hardening.h says what lies behind a block. A misuse
 * is noticed by one of these calls:
 *
 *     free, realloc, usable size    a pointer that is not a live block (block_map.h)
 *     free, realloc                 a write beyond the end of the block, or before its start
 *     hand-out of a block           a write to the block after it was freed
 *     end of the quarantine         a write to the first 16 bytes after the free
 *
 * Each misuse ends the program with one line on stderr and abort(). Any thread may call any
 * function. `caller` is the return address of the program's call. Small blocks read as zero when
 * they are handed out. Large blocks do so, too, unless the thread has used up its time for guards
 * (large_guard.h).
 */
#ifndef CAIRN_HARDENED_HARDENED_H
#define CAIRN_HARDENED_HARDENED_H

#include "alloc/alloc.h"

/* Return a block, or NULL if there is no memory. The block of hardened_calloc() reads as zero. */
void *hardened_malloc(size_t size, const void *caller);
void *hardened_calloc(size_t count, size_t size, const void *caller);
void *hardened_aligned(size_t alignment, size_t size, const void *caller);

/* Like shared_heap_allocate(). */
void *hardened_heap_allocate(struct heap *heap, size_t size, size_t alignment, const void *caller);

void hardened_free(void *p, const void *caller);

/* `size` is not 0. */
void *hardened_realloc(void *p, size_t size, const void *caller);

/* Resizes a block in place. Returns false if that is impossible. */
bool hardened_resize(void *p, size_t size, const void *caller);

/* Returns the bytes that were requested. */
size_t hardened_usable_size(const void *p, const void *caller);

#endif
