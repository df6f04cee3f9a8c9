/* size_class.h - size <-> class: pure arithmetic, and the only place that knows how large a small block is.
 *
 * 64 classes: every 16 bytes up to 256, then 8 to a doubling up to 8 KiB, then 4 to a doubling up to 32 KiB. So a block
 * of 16 bytes and more wastes less than half of itself, one above 128 bytes at most an eighth, one above 8 KiB at most a
 * fifth of what it asked for. Always true:
 *
 *     size_class(n) is the smallest class with size_class_bytes(class) >= n, for n from 0 to SIZE_CLASS_BYTES_MAX
 *     every class is a multiple of 16 bytes
 *
 * Both directions come from one formula at compile time (size_class.c); docs/allocator.md shows the table. Fewer
 * of these classes, for who has few blocks of each: size_class_coarse().
 */
#ifndef CAIRN_ALLOC_SIZE_CLASS_H
#define CAIRN_ALLOC_SIZE_CLASS_H

#include "base/base.h"

enum {
    SIZE_CLASS_COUNT = 64,
    SIZE_CLASS_BYTES_MAX = 32768,
    SIZE_CLASS_TABLE_MAX = 1024, /* up to here by table */
    SIZE_CLASS_ALIGNMENT_MAX = 4096,
};

extern const uint8_t size_class_table[SIZE_CLASS_TABLE_MAX / 16 + 1];
extern const uint16_t size_class_units[SIZE_CLASS_COUNT]; /* of 16 bytes */

/* `size` is above SIZE_CLASS_TABLE_MAX and at most SIZE_CLASS_BYTES_MAX. */
static inline unsigned size_class_above_table(size_t size)
{
    unsigned last = (unsigned)(size - 1);
    unsigned doubling = 31 - (unsigned)__builtin_clz(last); /* 10 to 14 */
    if (size <= 8192)
        return 32 + (doubling - 10) * 8 + ((last >> (doubling - 3)) & 7);
    return 56 + (doubling - 13) * 4 + ((last >> (doubling - 2)) & 3);
}

/* `size` is at most SIZE_CLASS_BYTES_MAX; 0 is as 1. */
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

/* The smallest class that holds blocks of `class`, of `steps` to a doubling (1, 2, 4 or 8) where it has that many. Its blocks
 * begin at multiples of whatever those of `class` do. */
static inline unsigned size_class_coarse(unsigned class, size_t steps)
{
    size_t bytes = size_class_bytes(class);
    size_t step = ((size_t)1 << (63 - __builtin_clzl(bytes - 1))) / steps;
    return size_class((bytes + step - 1) & ~(step - 1));
}

/* The smallest class that holds `size` and whose blocks all begin at a multiple of `alignment`, a power of two.
 * SIZE_CLASS_COUNT: there is none. */
static inline unsigned size_class_aligned(size_t size, size_t alignment)
{
    if (size > SIZE_CLASS_BYTES_MAX || alignment > SIZE_CLASS_ALIGNMENT_MAX)
        return SIZE_CLASS_COUNT;
    unsigned class = size_class((size + alignment - 1) &
                                ~(alignment - 1)); /* the largest is a multiple of each */
    while (class < SIZE_CLASS_COUNT && (size_class_bytes(class) & (alignment - 1)) != 0)
        class ++;
    return class;
}

#endif
