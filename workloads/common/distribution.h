/* distribution.h - how large blocks are, and how long they live.
 *
 * All draw from the caller's generator, so a seed decides them. Sizes are bytes, lifetimes a number of later
 * operations. All results lie within the bounds given.
 */
#ifndef WORKLOAD_DISTRIBUTION_H
#define WORKLOAD_DISTRIBUTION_H

#include "common/random.h"

#include <stddef.h>

/* Every size from `least` to `most` alike; most - least < 2^32. */
static inline size_t size_uniform(struct random *random, size_t least, size_t most)
{
    return least + (size_t)random_below(random, (uint64_t)(most - least) + 1);
}

/* Every doubling between `least` and `most` alike: as many blocks of 1 to 2 KiB as of 16 to 32 bytes. */
size_t size_log_uniform(struct random *random, size_t least, size_t most);

/* Sizes as in the programs of a large fleet: 98 % of the objects are below 1 KiB and hold a quarter to a third of the
 * bytes, objects above 8 KiB hold half of them (Zhou et al., "Characterizing a memory allocator at warehouse scale",
 * ASPLOS 2024). 8 bytes to 256 KiB. */
size_t size_of_fleet(struct random *random);

/* Most blocks die young, the rest live long: one in `old_one_in` has a mean lifetime of `old_mean`, the others of
 * `young_mean`, both exponential and at least 1 (the weak generational hypothesis; Ungar, SDE 1984). */
uint64_t lifetime_generational(struct random *random, double young_mean, double old_mean,
                               unsigned old_one_in);

/* Exponential, at least 1. */
uint64_t lifetime_exponential(struct random *random, double mean);

#endif
