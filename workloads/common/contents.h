/* contents.h - what is written into a block, and what must be found there later.
 *
 * The contents of `size` bytes follow from a key: word i is key + i × CONTENTS_STEP, and the bytes behind the last whole
 * word are those of the key. The sum over them has a closed form, so a block can be checked without a second copy: two
 * blocks that overlap, or one that was moved wrongly, give another sum but for a chance of 2^-60.
 */
#ifndef WORKLOAD_CONTENTS_H
#define WORKLOAD_CONTENTS_H

#include <stddef.h>
#include <stdint.h>

#define CONTENTS_STEP UINT64_C(0x9e3779b97f4a7c15)

/* How much of a block a workload writes and reads back: nothing, its first 8 bytes (as much of them as there is), or
 * all of it. */
enum touch { TOUCH_NONE, TOUCH_HEADER, TOUCH_ALL };

/* Bytes of a block of `size` that this touches. */
static inline size_t touch_bytes(enum touch touch, size_t size)
{
    return touch == TOUCH_ALL ? size : touch == TOUCH_NONE ? 0 : size < 8 ? size : 8;
}

/* Writes bytes `from` to `size`; with `from` above 0 the contents of `from` bytes grow into those of `size`. `start` is
 * a multiple of 8. */
void contents_write(void *start, size_t from, size_t size, uint64_t key);

/* The sum over the `size` bytes that are there. */
uint64_t contents_sum(const void *start, size_t size);

/* The sum that contents_sum() gives when nothing was lost. */
uint64_t contents_expected(size_t size, uint64_t key);

/* Tells whether `size` bytes are all zero. */
_Bool contents_are_zero(const void *start, size_t size);

#endif
