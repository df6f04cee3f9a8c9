/* emergency.h - memory for a thread that must not take the allocator's locks.
 *
 * A signal handler may interrupt a thread in the middle of malloc or free, while the thread holds a
 * lock of the allocator, and then fork. The child may allocate a little before it calls exec() or
 * _exit(), but must not wait for that lock, and must not read the data that the lock guards. The
 * same holds in a child of _Fork() or clone(), which run no fork handlers: a thread that only the
 * parent has may have held a lock. In these cases alloc.c takes blocks from here. It takes other
 * blocks back only if that needs no lock.
 *
 * The blocks lie outside the region, one after the other in mappings of their own, each behind a
 * header with its size. When all blocks of a mapping were freed, its memory is used again. So a
 * child of vfork() that frees what it allocates leaves nothing behind in its parent. Any thread and
 * any signal handler may call any function here. No function takes a lock.
 */
#ifndef CAIRN_ALLOC_EMERGENCY_H
#define CAIRN_ALLOC_EMERGENCY_H

#include "base/base.h"

/* Returns a block that reads as zero, of at least `size` bytes at a multiple of `alignment`, a
 * power of two. Returns NULL if there is no memory. */
void *emergency_allocate(size_t size, size_t alignment) __attribute__((cold));

/* Frees a block of emergency_allocate(). Does nothing if the block was freed before, or if `p` is
 * another address in the memory of such blocks. */
void emergency_free(void *p) __attribute__((cold));

/* Returns whether `p` is a block of emergency_allocate(). */
bool emergency_owns(const void *p) __attribute__((cold));

/* Returns how many bytes of a block may be used. */
size_t emergency_bytes(const void *p) __attribute__((cold));

#endif
