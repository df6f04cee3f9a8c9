/* watched.h - a fair sample of the live blocks, with the thread, the time and the size of each
 * allocation.
 *
 * A block whose allocation is timed is watched until it is freed. All large allocations are timed.
 * Of the small and medium allocations, a random sample is timed. A watched block stands for
 * `weight` blocks of its kind. The table has a fixed size. When a part of the table is full, each
 * small and medium block in this part is dropped with probability one half. The weights of the
 * blocks that stay are doubled, so that sums over the watched blocks remain unbiased estimates (the
 * idea of bottom-k sampling). If this frees no room, the large blocks are treated in the same way.
 * account.c calls these functions from any thread, with the guard at THREAD_INSIDE
 * (thread_state.h). Always:
 *
 *     watched_filter[watched_slot(block)] == 0  =>  the block is neither watched nor marked
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
    /* The highest bit of a slot is a mark. The other bits are the number of the slot's blocks that
     * are watched, or counted by watched_count(). */
    WATCHED_MARK = 0x80,
};

struct watched {
    uint64_t ticks;  /* when the block was handed out */
    uint64_t bytes;  /* requested bytes */
    uint64_t usable; /* usable bytes (malloc_usable_size()); 0: not known */
    uint32_t thread; /* thread_state.number of the allocating thread */
    uint32_t weight; /* number of blocks that this block stands for */
};

extern _Atomic uint8_t watched_filter[1 << WATCHED_FILTER_SHIFT]
    __attribute__((visibility("hidden")));

/* Returns the slot of a block in the filter. The lowest bits of most addresses are equal. So
 * Fibonacci hashing (Knuth, vol. 3) multiplies the address by a constant and takes the highest bits
 * of the product. */
static inline uint32_t watched_slot(const void *block)
{
    return (uint32_t)(((uintptr_t)block * UINT64_C(0x9e3779b97f4a7c15)) >>
                      (64 - WATCHED_FILTER_SHIFT));
}

/* Returns false if the block is surely neither watched nor marked. */
static inline bool watched_maybe(const void *block)
{
    return atomic_load_explicit(&watched_filter[watched_slot(block)], memory_order_relaxed) != 0;
}

/* Marks a block, so that its free takes the slow path although it is not watched (layout.h). Any
 * thread may mark blocks at any time. There is only one mark for all blocks of a slot, and
 * watched_unmark_all() removes all marks. */
void watched_mark(const void *block);
void watched_unmark_all(void);

/* watched_count() adds 1 to the number in the block's slot of the filter, so that the block's free
 * takes the slow path although the block is not watched (call_stacks.h). watched_uncount()
 * subtracts 1 again. If the number is already 16 or more, watched_count() marks the block instead
 * and returns false. */
bool watched_count(const void *block);
void watched_uncount(const void *block);

/* Returns false if the block is surely neither watched nor counted. It may be marked. */
bool watched_maybe_counted(const void *block);

/* Returns the bytes of the filter's OS pages of 4 KiB that were ever written. The other pages were
 * only read, so the kernel's page of zeroes stands for them. */
uint64_t watched_filter_bytes(void);

/* Watches a block. After n halvings of its part of the table, the block is watched only with
 * probability 1 / 2^n, and its weight is multiplied by 2^n. */
void watched_add(const void *block, struct watched watched, struct random *random);

/* Watches a block again after watched_take(). `block` is its address after realloc. */
void watched_move(const void *block, struct watched watched, struct random *random);

/* Stops watching a block and copies its data to `*watched`. Returns false if the block was not
 * watched. */
bool watched_take(const void *block, struct watched *watched);

/* Estimated totals over all live blocks. */
struct watched_live {
    uint64_t bytes;  /* requested bytes */
    uint64_t usable; /* usable bytes (malloc_usable_size()) */
    uint64_t error;  /* standard error of `bytes` */
};
struct watched_live watched_live(void);

/* Returns watched_live().bytes. */
uint64_t watched_bytes(void);

/* Adds a sampled allocation, whose block may be watched or not, to the totals of its size class. */
void watched_sampled(uint64_t bytes, uint64_t usable, uint64_t weight);

/* Returns the number of allocations that were sampled. */
uint64_t watched_samples(void);

/* `share` is requested bytes / usable bytes of the live blocks, and `error` is its standard error.
 * If the share was computed from n blocks, the error is at least 1 / (1 + n), because a few blocks
 * of equal share say nothing about the other blocks. */
struct watched_requested {
    double share;
    double error;
};

/* Estimates the share from the watched blocks or from the average share of each size class,
 * whichever is expected to be closer. The watched blocks are a fair sample of the live blocks, but
 * in a small program they are few. The averages are those of all sampled allocations. These may
 * mostly be short-lived blocks, whose sizes may be rounded up more or less than those of the live
 * blocks. */
struct watched_requested watched_requested(void);

/* From now on watched_maybe() returns true for every block, so that every free takes the slow path.
 * Called before the first block is watched. */
void watched_look_at_all(void);

/* Called in the child of a fork. Empties each part of the table that another thread was changing
 * during the fork. */
void watched_forked(void);

#endif
