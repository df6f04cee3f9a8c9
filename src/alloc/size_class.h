/* size_class.h - converts between sizes and size classes. No other file knows the sizes of small
 * blocks.
 *
 * There are 64 classes: one per 16 bytes up to 256 bytes, then 8 per doubling up to 8 KiB, then 4
 * per doubling up to 32 KiB. A block therefore wastes less than half of its bytes if 16 or more
 * were requested, less than an eighth from 129 bytes to 8 KiB, and less than a fifth above 8 KiB.
 * Always true:
 *
 *     size_class(n) is the smallest class with size_class_bytes(class) >= n,
 *         for 0 <= n <= SIZE_CLASS_BYTES_MAX
 *     size_class_bytes(class) % 16 == 0
 *
 * The tables are constants (size_class.c). docs/allocator-reference.md shows the sizes. A heap with
 * few blocks of each class uses fewer classes: size_class_coarse().
 *
 * All functions are pure. Any thread may call them.
 */
#ifndef CAIRN_ALLOC_SIZE_CLASS_H
#define CAIRN_ALLOC_SIZE_CLASS_H

#include "base/base.h"

enum {
    SIZE_CLASS_COUNT = 64,
    SIZE_CLASS_BYTES_MAX = 32768,
    SIZE_CLASS_TABLE_MAX = 1024, /* greatest size that has a table entry */
    SIZE_CLASS_ALIGNMENT_MAX = 4096,
};

extern const uint8_t size_class_table[SIZE_CLASS_TABLE_MAX / 16 + 1];
extern const uint8_t size_class_coarse_table[SIZE_CLASS_BYTES_MAX / 128];
extern const uint16_t size_class_units[SIZE_CLASS_COUNT]; /* size / 16 */

/* Returns the class of a size above SIZE_CLASS_TABLE_MAX and up to SIZE_CLASS_BYTES_MAX. */
static inline unsigned size_class_above_table(size_t size)
{
    return size_class_coarse_table[(size - 1) / 128];
}

/* Returns the class of a size up to SIZE_CLASS_BYTES_MAX. A size of 0 has the class of 1. */
static inline unsigned size_class(size_t size)
{
    if (LIKELY(size <= SIZE_CLASS_TABLE_MAX))
        return size_class_table[(size + 15) / 16];
    return size_class_above_table(size);
}

static inline size_t size_class_bytes(unsigned class)
{
    return (size_t)size_class_units[class] * 16;
}

/* Returns the smallest class that holds the blocks of `class` and is one of `steps` classes per
 * doubling (1, 2, 4 or 8). Where a doubling has fewer classes than `steps`, all of them qualify.
 * Blocks of the result are aligned at least as blocks of `class` are. */
static inline unsigned size_class_coarse(unsigned class, size_t steps)
{
    size_t bytes = size_class_bytes(class);
    size_t step = ((size_t)1 << (63 - __builtin_clzl(bytes - 1))) / steps;
    return size_class((bytes + step - 1) & ~(step - 1));
}

/* Returns the smallest class that holds `size` bytes and whose blocks all begin at a multiple of
 * `alignment`, a power of two. Returns SIZE_CLASS_COUNT if there is none. */
static inline unsigned size_class_aligned(size_t size, size_t alignment)
{
    if (size > SIZE_CLASS_BYTES_MAX || alignment > SIZE_CLASS_ALIGNMENT_MAX)
        return SIZE_CLASS_COUNT;
    /* The rounded size has a class: SIZE_CLASS_BYTES_MAX is a multiple of every alignment here. */
    unsigned class = size_class((size + alignment - 1) & ~(alignment - 1));
    while (class < SIZE_CLASS_COUNT && (size_class_bytes(class) & (alignment - 1)) != 0)
        class ++;
    return class;
}

#endif
