/* alloc.h - allocate, free, resize: what the names that the world expects come down to.
 *
 * The fast paths read straight down; all that is rare leaves through one cold door. NULL is the answer to a size that
 * overflows or that the machine refuses, and errno is not touched here: abi/ knows what the standards ask for. Any
 * thread may call anything, also with blocks of another. Every block is aligned to 16 bytes.
 */
#ifndef CAIRN_ALLOC_ALLOC_H
#define CAIRN_ALLOC_ALLOC_H

#include "base/base.h"

void *alloc_malloc(size_t size);

/* count × size bytes, all zero. */
void *alloc_calloc(size_t count, size_t size);

/* `alignment` is a power of two. */
void *alloc_aligned(size_t alignment, size_t size);

/* `p` is NULL, or came from here. Wrong use is one line on stderr and abort(). */
void alloc_free(void *p);

/* Like ISO C's; a size of 0 is one of 1. */
void *alloc_realloc(void *p, size_t size);

/* Bytes that may be used; stable as long as the block lives. 0 for NULL. */
size_t alloc_usable_size(const void *p);

#endif
