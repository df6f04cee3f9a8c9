/* distribution.h - draws sizes and lifetimes of blocks.
 *
 * All functions draw from the caller's generator, so the seed decides the results. Sizes are in
 * bytes. Lifetimes are numbers of later operations. All sizes are within the given bounds.
 */
#ifndef WORKLOAD_DISTRIBUTION_H
#define WORKLOAD_DISTRIBUTION_H

#include "common/random.h"

#include <stddef.h>

/* Returns a size from `least` to `most`. All sizes are equally likely. `most` - `least` must be
 * below 2^32. */
static inline size_t size_uniform(struct random *random, size_t least, size_t most)
{
    return least + (size_t)random_below(random, (uint64_t)(most - least) + 1);
}

/* Returns a size from `least` to `most`. Every range from a size to its double is equally likely:
 * there are as many blocks of 1 to 2 KiB as of 16 to 32 bytes. */
size_t size_log_uniform(struct random *random, size_t least, size_t most);

/* Returns a size from 8 bytes to 256 KiB, distributed as in the programs of a large fleet: 98 % of
 * the objects are below 1 KiB and have a quarter to a third of all bytes. Objects above 8 KiB have
 * half of all bytes (Zhou et al., "Characterizing a memory allocator at warehouse scale", ASPLOS
 * 2024). */
size_t size_of_fleet(struct random *random);

/* Returns a lifetime. Most blocks die young, and the rest live long (the weak generational
 * hypothesis; Ungar, SDE 1984). One lifetime in `old_one_in` is drawn with the mean `old_mean`, all
 * others with the mean `young_mean`. Both kinds are exponentially distributed and at least 1. */
uint64_t lifetime_generational(struct random *random, double young_mean, double old_mean,
                               unsigned old_one_in);

/* Returns a lifetime from an exponential distribution, at least 1. */
uint64_t lifetime_exponential(struct random *random, double mean);

#endif
