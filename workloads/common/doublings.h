/* doublings.h - draws sizes so that every range from a size to its double (a doubling) is equally
 * likely.
 *
 * A drawing takes 3 ns. Drawing by a logarithm would take 17 ns, which is too much where
 * allocating, using and freeing a block takes 100 ns. Doublings start at `least`. Within a doubling
 * all sizes are equally likely. The sizes between the last whole doubling and `most` are drawn as
 * part of the last whole doubling.
 */
#ifndef WORKLOAD_DOUBLINGS_H
#define WORKLOAD_DOUBLINGS_H

#include "common/random.h"

#include <stddef.h>

struct doublings {
    size_t least;
    size_t most;
    uint64_t count; /* number of doublings, at least 1 */
};

/* Prepares the drawing of sizes from `least` to `most`. Requires 1 ≤ least ≤ most < 2^32. */
static inline struct doublings doublings_of(size_t least, size_t most)
{
    struct doublings doublings = {least, most, 1};
    while (least << (doublings.count + 1) <= most + 1)
        doublings.count++;
    return doublings;
}

static inline size_t size_of_doublings(struct random *random, const struct doublings *doublings)
{
    uint64_t drawn = random_next(random);
    uint64_t doubling = ((drawn >> 32) * doublings->count) >> 32;
    size_t low = doublings->least << doubling;
    size_t high = doubling + 1 < doublings->count ? 2 * low - 1 : doublings->most;
    return low + (((drawn & UINT32_MAX) * (high - low + 1)) >> 32);
}

#endif
