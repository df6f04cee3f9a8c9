/* watched.h - a sample of the blocks that are handed out, so that of each it is known who got it, when, and how large.
 *
 * A block that is timed when it is allocated is watched until it is freed. Small and medium ones stand for `weight` of
 * their kind; large ones are watched all, while there is room. Where room becomes scarce, half of the blocks are
 * dropped by lot and the others stand for twice as many (the idea of bottom-k sampling), so what remains is always a
 * fair sample. Any thread may call anything, from inside (self.h). Always:
 *
 *     watched_filter[f(block)] == 0  =>  the block is not watched, nor are all to be looked at
 *     what is live                   ==  the sum over the watched of weight x bytes, and of weight x usable
 */
#ifndef CAIRN_PROBE_WATCHED_H
#define CAIRN_PROBE_WATCHED_H

#include "base/random.h"

#include <stdatomic.h>

enum {
    WATCHED_FILTER_SHIFT = 17,
    WATCHED_SHARDS_SHIFT = 6,
};

struct watched {
    uint64_t ticks; /* when it was handed out */
    uint64_t bytes;
    uint64_t usable; /* what the allocator set apart for it; 0: it was not asked */
    uint32_t thread; /* self.number of who got it */
    uint32_t weight;
};

extern _Atomic uint8_t watched_filter[1 << WATCHED_FILTER_SHIFT]
    __attribute__((visibility("hidden")));

/* The lowest bits of an address are alike; Fibonacci hashing (Knuth, vol. 3) takes the highest of a product. */
static inline uint32_t watched_slot(const void *block)
{
    return (uint32_t)(((uintptr_t)block * UINT64_C(0x9e3779b97f4a7c15)) >>
                      (64 - WATCHED_FILTER_SHIFT));
}

static inline bool watched_maybe(const void *block)
{
    return atomic_load_explicit(&watched_filter[watched_slot(block)], memory_order_relaxed) != 0;
}

/* Watches a block, unless the lot is against it; then what it stands for grows with the odds. */
void watched_add(const void *block, struct watched watched, struct random *random);

/* Watches again, at its new place, what was taken. */
void watched_move(const void *block, struct watched watched, struct random *random);

/* Stops watching. False: it was not watched. */
bool watched_take(const void *block, struct watched *watched);

/* What is not freed, estimated. */
struct watched_live {
    uint64_t bytes; /* asked for */
    uint64_t usable;
};
struct watched_live watched_live(void);

/* Every block may be watched: for who wants to see each free. Before the first one is; there is no way back. */
void watched_look_at_all(void);

/* In a fork's child: what another thread left half done is dropped. */
void watched_forked(void);

#endif
