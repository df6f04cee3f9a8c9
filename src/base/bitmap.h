/* bitmap.h - runs of bits in a map of 128 bits, which is stored as two words. Bit 0 is the lowest
 * bit of word 0.
 *
 * All functions are pure, except bitmap_store(). */
#ifndef CAIRN_BITMAP_H
#define CAIRN_BITMAP_H

#include "base/base.h"

enum { BITMAP_BITS = 128 };

struct bitmap {
    uint64_t word[2];
};

/* The map as one number. gcc and clang have this type on every target that we support. */
typedef unsigned __int128 bitmap_wide;

static inline bitmap_wide bitmap_load(const struct bitmap *bitmap)
{
    return (bitmap_wide)bitmap->word[1] << 64 | bitmap->word[0];
}

static inline void bitmap_store(struct bitmap *bitmap, bitmap_wide wide)
{
    bitmap->word[0] = (uint64_t)wide;
    bitmap->word[1] = (uint64_t)(wide >> 64);
}

/* Returns a map with `count` bits set from `first` on. `count` is 1 to 128 - first. */
static inline bitmap_wide bitmap_run(unsigned first, unsigned count)
{
    return (~(bitmap_wide)0 >> (BITMAP_BITS - count)) << first;
}

/* Returns the position of the lowest set bit. `wide` is not 0. */
static inline unsigned bitmap_lowest(bitmap_wide wide)
{
    uint64_t low = (uint64_t)wide;
    return low != 0 ? (unsigned)__builtin_ctzll(low)
                    : 64 + (unsigned)__builtin_ctzll((uint64_t)(wide >> 64));
}

/* Returns the position of the highest set bit. `wide` is not 0. */
static inline unsigned bitmap_highest(bitmap_wide wide)
{
    uint64_t high = (uint64_t)(wide >> 64);
    return high != 0 ? 127 - (unsigned)__builtin_clzll(high)
                     : 63 - (unsigned)__builtin_clzll((uint64_t)wide);
}

static inline unsigned bitmap_count(bitmap_wide wide)
{
    return (unsigned)(__builtin_popcountll((uint64_t)wide) +
                      __builtin_popcountll((uint64_t)(wide >> 64)));
}

/* Returns a map of all bits whose position is a multiple of 2^shift. `shift` is 0 to 7. */
static inline bitmap_wide bitmap_multiples(unsigned shift)
{
    static const uint64_t every[] = {
        UINT64_MAX,
        0x5555555555555555,
        0x1111111111111111,
        0x0101010101010101,
        0x0001000100010001,
        0x0000000100000001,
        1,
    };
    return shift == 7 ? 1 : (bitmap_wide)every[shift] << 64 | every[shift];
}

/* Returns a map of all positions at which `count` set bits in a row begin. `count` is 1 to 128. The
 * length doubles at each step. The last step overlaps: a run of 13 is a run of 8 and another run of
 * 8 that begins 5 bits further. */
static inline bitmap_wide bitmap_starts(bitmap_wide wide, unsigned count)
{
    unsigned have = 1;
    while (have * 2 <= count) {
        wide &= wide >> have;
        have *= 2;
    }
    return have < count ? wide & wide >> (count - have) : wide;
}

/* Like bitmap_longest(), but takes about the same time for every map. First finds the longest run
 * whose length is a power of two, and then lengthens it by smaller powers of two. */
static inline unsigned bitmap_longest_of_many(bitmap_wide wide)
{
    bitmap_wide starts[8]; /* starts[i]: where runs of 2^i bits begin */
    unsigned i = 0;
    starts[0] = wide;
    while (i < 7 && (starts[i + 1] = starts[i] & starts[i] >> (1u << i)) != 0)
        i++;
    if (i == 7)
        return BITMAP_BITS;
    unsigned length = 1u << i;
    bitmap_wide longest = starts[i];
    while (i-- > 0) {
        bitmap_wide longer = longest & starts[i] >> length;
        if (longer != 0) {
            longest = longer;
            length += 1u << i;
        }
    }
    return length;
}

/* Returns the length of the longest run of set bits. Most maps have few runs, so the runs are
 * visited one by one. After 8 runs, bitmap_longest_of_many() handles the rest. */
static inline unsigned bitmap_longest(bitmap_wide wide)
{
    unsigned longest = 0;
    for (int runs = 0; wide != 0; runs++) {
        if (runs == 8) {
            unsigned rest = bitmap_longest_of_many(wide);
            return rest > longest ? rest : longest;
        }
        wide >>= bitmap_lowest(wide);
        unsigned length = wide == ~(bitmap_wide)0 ? BITMAP_BITS : bitmap_lowest(~wide);
        if (length > longest)
            longest = length;
        if (length == BITMAP_BITS)
            break;
        wide >>= length;
    }
    return longest;
}

#endif
