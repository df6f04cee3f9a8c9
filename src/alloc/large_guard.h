/* large_guard.h - protects large blocks in the hardened build (hardening.h): with guards before and
 * behind a block, and without access to a block that was freed.
 *
 *     run:  | guard: one OS page | the block | filled bytes | unused | guard: the rest |
 *
 * No one can access a guard (os_guard()). The guard before the block is missing if the block has a
 * larger alignment than an OS page, or if an OS page is as large as a slice. The bytes behind the
 * block, at most 64 and up to the next OS page, hold HARDENING_FILL. A run is in one of four
 * states:
 *
 *     open      it has no guard
 *     guarded   guards lie around the block
 *     sealed    all of it is a guard, and reads as zero when the guard is removed
 *     emptied   it has no guard, and reads as zero
 *
 * Runs keep their state while run_cache.h keeps them. The runs of slabs, and those of the page
 * heap, are open.
 *
 * A change of state takes a system call, and later page faults. That takes a thousand times as long
 * as the reuse of a freed block. So each thread has a budget of time. While it lasts, a new block
 * gets a guard close to its end, and a freed block is sealed. When it is used up, a new block has
 * the guards that its run already has, and a freed block is not sealed. CAIRN_HARDENED=full sets no
 * limit.
 *
 * Three fields of the run's record that otherwise only slabs use describe the block and its guards.
 * `posted` is the number of requested bytes. `until` is the distance of the block from the start of
 * its run. `end` is the number of OS pages from the start of the run to the guard behind the block,
 * or one of the numbers below.
 *
 * The caller of a function must own the block.
 */
#ifndef CAIRN_ALLOC_LARGE_GUARD_H
#define CAIRN_ALLOC_LARGE_GUARD_H

#include "alloc/slab.h"

#define LARGE_OPEN    UINT32_C(0)
#define LARGE_EMPTIED (UINT32_MAX - 1)
#define LARGE_SEALED  UINT32_MAX

/* The time that a thread may still spend on changes of guards, in ticks of ticks.h. The budget
 * grows by a sixteenth of the time that passes, up to LARGE_BUDGET_MOST. A thread's first
 * LARGE_BUDGET_BLOCKS changes of guards cost nothing. */
struct large_budget {
    uint64_t seen;  /* when the clock was read last */
    int64_t left;   /* time left; may be negative */
    uint32_t spent; /* changes so far, counted to LARGE_BUDGET_BLOCKS */

    /* Number of calls since the clock was read last. Each of them found no time left. */
    uint32_t missed;
};
enum {
    LARGE_BUDGET_BLOCKS = 256,
    LARGE_BUDGET_SHARE = 16,
    LARGE_BUDGET_MOST = 1 << 22,
};

/* Removes the limit of all budgets. Called before the program has a second thread. */
void large_guard_lift_limit(void);

/* Returns whether time is left in the budget. NULL is a budget without a limit. */
bool large_guard_has_budget(struct large_budget *budget);

/* Returns the bytes that must be allocated for a large block, so that there is room for its guards.
 * Returns SIZE_MAX if that overflows. */
size_t large_guard_room(size_t size, size_t alignment);

/* Makes the run, in any state, a block of `size` bytes, and returns the block. The length of the
 * run was computed by large_guard_room() for the same alignment. The caller sets `*zero` to whether
 * the run is known to read as zero. The function sets it to whether the block reads as zero. */
void *large_guard_set(struct slab *slab, size_t size, size_t alignment, bool *zero,
                      struct large_budget *budget);

/* Returns the number of requested bytes. */
static inline size_t large_guard_size(const struct slab *slab)
{
    return (size_t)atomic_load_explicit(&slab->posted, memory_order_relaxed);
}

/* Returns the block. */
static inline void *large_guard_block(const struct slab *slab)
{
    return slab_start(slab) + atomic_load_explicit(&slab->until, memory_order_relaxed);
}

/* Returns an alignment for which large_guard_set() places a block as far from the start of its run
 * as this block is. */
size_t large_guard_alignment(const struct slab *slab);

/* Returns whether the filled bytes behind the block are unchanged. */
bool large_guard_is_intact(const struct slab *slab);

/* Called when a block was freed. While the budget lasts, seals its run, or empties it if it is so
 * long that no thread will keep it. */
void large_guard_seal(struct slab *slab, struct large_budget *budget);

/* Makes the run of a block, or a kept run, an open one. Returns whether it is known to read as
 * zero. */
bool large_guard_open(struct slab *slab);

#endif
