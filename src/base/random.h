/* random.h - random numbers that repeat for the same seed: SplitMix64 (Steele, Lea and Flood,
 * OOPSLA 2014). The numbers must not be used for secrets. */
#ifndef CAIRN_RANDOM_H
#define CAIRN_RANDOM_H

#include "base/base.h"

struct random {
    uint64_t state;
};

static inline struct random random_of(uint64_t seed)
{
    return (struct random){seed};
}

static inline uint64_t random_next(struct random *random)
{
    uint64_t x = random->state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Returns a number from 0 to bound - 1. `bound` is 1 to 2^32. */
static inline uint64_t random_below(struct random *random, uint64_t bound)
{
    return ((random_next(random) >> 32) * bound) >> 32;
}

#endif
