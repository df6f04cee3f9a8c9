/* watched.h - a fair sample of the live blocks, with the thread, the time and the size of each
 * allocation.
 *
 * A block whose allocation is timed is watched until it is freed: small and medium blocks by a
 * sample, large ones all. A watched block stands for `weight` blocks of its kind. The table has a
 * fixed size. When a part of it is full, each small and medium block in that part is dropped with
 * probability one half, and the weights of the others double (the idea of bottom-k sampling); large
 * blocks are halved if that frees no room. So the sums over the watched blocks are unbiased
 * estimates. account.c calls these functions from any thread, while it is inside (self.h). Always:
 *
 *     watched_filter[watched_slot(block)] == 0  =>  the block is not watched
 *     watched_live().bytes                      ==  sum over watched blocks of weight * bytes
 *     watched_live().usable                     ==  sum over watched blocks of weight * usable
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
    uint64_t ticks;  /* when it was handed out */
    uint64_t bytes;  /* as requested */
    uint64_t usable; /* bytes set apart for it; 0: not asked */
    uint32_t thread; /* self.number of the thread that got it */
    uint32_t weight; /* number of blocks that it stands for */
};

extern _Atomic uint8_t watched_filter[1 << WATCHED_FILTER_SHIFT]
    __attribute__((visibility("hidden")));

/* Returns the slot of a block in the filter. The lowest bits of addresses are alike, so Fibonacci
 * hashing (Knuth, vol. 3) takes the highest bits of a product. */
static inline uint32_t watched_slot(const void *block)
{
    return (uint32_t)(((uintptr_t)block * UINT64_C(0x9e3779b97f4a7c15)) >>
                      (64 - WATCHED_FILTER_SHIFT));
}

/* Returns false if the block is surely not watched. */
static inline bool watched_maybe(const void *block)
{
    return atomic_load_explicit(&watched_filter[watched_slot(block)], memory_order_relaxed) != 0;
}

/* Watches a block. After n halvings, only one block in 2^n is kept, with a weight multiplied by
 * 2^n. */
void watched_add(const void *block, struct watched watched, struct random *random);

/* Watches a block again that watched_take() returned, at the address where realloc left it. */
void watched_move(const void *block, struct watched watched, struct random *random);

/* Stops watching a block and sets `*watched` to what is known of it. Returns false if it was not
 * watched. */
bool watched_take(const void *block, struct watched *watched);

/* Estimated totals over all live blocks. */
struct watched_live {
    uint64_t bytes;  /* requested */
    uint64_t usable; /* set apart by the allocator */
};
struct watched_live watched_live(void);

/* Makes watched_maybe() true for every block from now on, so that every free takes the slow path.
 * Called before the first block is watched. */
void watched_look_at_all(void);

/* For a fork's child: empties each part of the table that another thread was changing during the
 * fork. */
void watched_forked(void);

#endif
