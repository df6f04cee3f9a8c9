/* random.h - a seeded random generator: the same seed gives the same numbers on every machine.
 *
 * The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014). A number takes one addition and one call of random_mix(), so that
 * drawing costs less than the measured calls. The numbers are predictable and must not be used for
 * secrets. A generator belongs to one thread.
 */
#ifndef WORKLOAD_RANDOM_H
#define WORKLOAD_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state;
};

/* Returns a number of which every bit depends on all bits of `x`. Different `x` give different
 * results. */
static inline uint64_t random_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Returns generator number `stream` of a seed. The workloads draw so few numbers that the numbers
 * of two streams do not overlap. */
static inline struct random random_of(uint64_t seed, uint64_t stream)
{
    return (struct random){random_mix(seed ^ random_mix(stream + 1))};
}

static inline uint64_t random_next(struct random *random)
{
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    return random_mix(random->state);
}

/* Returns a number from 0 to bound - 1. `bound` is 1 to 2^32. The probability of each number
 * differs from 1 / bound by less than 2^-32. */
static inline uint64_t random_below(struct random *random, uint64_t bound)
{
    return ((random_next(random) >> 32) * bound) >> 32;
}

/* Returns x with 0 ≤ x < 1, in steps of 2^-53. */
static inline double random_unit(struct random *random)
{
    return (double)(random_next(random) >> 11) * 0x1p-53;
}

#endif
