/* contents.h - fills blocks with contents that can be checked later.
 *
 * The contents of `size` bytes follow from a key. Word i is key + i × CONTENTS_STEP. The bytes
 * after the last whole word are the first bytes of the key. The sum of all words, including these
 * last bytes, has a closed form. So a block can be checked without a second copy. If two blocks
 * overlap, or if realloc moved a block wrongly, the sum is wrong with a probability of 1 - 2^-60.
 */
#ifndef WORKLOAD_CONTENTS_H
#define WORKLOAD_CONTENTS_H

#include <stddef.h>
#include <stdint.h>

#define CONTENTS_STEP UINT64_C(0x9e3779b97f4a7c15)

/* The part of a block that a workload writes and reads back: nothing, the first 8 bytes (or all
 * bytes of a smaller block), or the whole block. */
enum touch { TOUCH_NONE, TOUCH_HEADER, TOUCH_ALL };

/* Returns the number of bytes of a block of `size` that are written and read back. */
static inline size_t touch_bytes(enum touch touch, size_t size)
{
    return touch == TOUCH_ALL ? size : touch == TOUCH_NONE ? 0 : size < 8 ? size : 8;
}

/* Writes the bytes at offsets `from` to `size` - 1, so that the block has contents of `size` bytes.
 * If `from` is above 0, the block must have contents of `from` bytes with the same key before.
 * `start` is a multiple of 8. */
void contents_write(void *start, size_t from, size_t size, uint64_t key);

/* Returns the sum of the words in the `size` bytes at `start`. */
uint64_t contents_sum(const void *start, size_t size);

/* Returns the sum that contents_sum() must return for `size` bytes written with `key`. */
uint64_t contents_expected(size_t size, uint64_t key);

/* Returns whether all `size` bytes are zero. */
_Bool contents_are_zero(const void *start, size_t size);

#endif
