/* run_cache_learning.h - learns, while the program runs, how many slices each thread may keep in
 * its run_cache.h. CAIRN_POLICY=ucb1 turns this on.
 *
 * The knob has six steps: each thread may keep 1/2, 1, 2, 4, 8 or 16 times as much as
 * run_cache_share() says. The learner of policy/knob_learner.h chooses the step, beginning with 1.
 *
 * A miss is a large block for which a thread with a heap kept no run. Blocks that realloc moves do
 * not count. Misses are counted in slow paths only. After every EPOCH_MISSES misses, a thread reads
 * the clock. If the epoch has lasted EPOCH_NS, it ends. Its cost is computed from counts and from
 * its length. The time of single operations is not measured.
 *
 *     misses * MISS_NS + kept pages of 4 KiB * seconds * PAGE_SECOND_NS
 *
 * A thread notes how much it keeps at each of its misses, when it mostly keeps little, and at each
 * free in a slow path, when it mostly keeps much. The mean of the two means, multiplied by the
 * number of threads, stands for what all threads keep. A program without misses ends no epoch, and
 * the step stays as it is.
 *
 * Any thread may call the functions other than run_cache_learning_begin(). They take no lock. If
 * one thread forks while another one ends an epoch, the child learns nothing more.
 */
#ifndef CAIRN_ALLOC_RUN_CACHE_LEARNING_H
#define CAIRN_ALLOC_RUN_CACHE_LEARNING_H

#include "alloc/run_cache.h"

extern bool run_cache_learns __attribute__((visibility("hidden")));

static inline bool run_cache_is_learnt(void)
{
    return run_cache_learns;
}

/* From now on the knob is learnt. Called before the program has a second thread. */
void run_cache_learning_begin(void);

/* Counts a miss of a thread that keeps `kept` slices, in a program in which `threads` threads have
 * a heap. Called only if run_cache_is_learnt(). */
void run_cache_learning_missed(uint32_t kept, uint32_t threads);

/* Counts a free in a slow path of a thread that keeps `kept` slices. Called only if
 * run_cache_is_learnt(). */
void run_cache_learning_freed(uint32_t kept);

/* Returns how many slices a thread may keep if run_cache_share() says `share`. */
uint32_t run_cache_learnt(uint32_t share);

/* The cost of an epoch in nanoseconds, as defined above. */
double run_cache_learning_cost_ns(uint64_t misses, double kept_slices, double seconds);

#endif
