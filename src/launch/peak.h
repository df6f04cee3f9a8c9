/* peak.h - computes the highest memory of a tree of processes from a series of readings. It makes
 * no system calls; memory.h makes the readings.
 *
 *     resident = anonymous + shared pages: the memory that counts
 *     lazy     = part of resident that was given back with MADV_FREE and is not yet reclaimed
 *     other    = page cache and kernel memory: charged by the kernel, but not memory of the program
 *
 * Always:
 *
 *     less_lazy_bytes <= peak_bytes
 *     lazy_peak_bytes <= peak_bytes
 *
 * Resident memory may have been higher between two readings than at both of them. Some kernels
 * report the highest charge since the last reading, `charged_max`: the most memory that the cgroup
 * was charged with at any moment. If `other` was not higher between the readings than at both of
 * them, resident was at that moment at least
 *
 *     charged_max - max(other at the first reading, other at the second)
 *
 * This bound closes the gap between the readings. It has three limits:
 *
 * 1. A file that is written and deleted within one interval counts as memory. The error is small
 * because intervals are short.
 *
 * 2. If the kernel reclaimed page cache during the interval, from any process, the bound is not
 * used. The kernel counts reclaimed pages with a delay. So a gap is not closed at the reading that
 * ends it, but at the next reading, or at the end of the program.
 *
 * 3. The bound is used only if it exceeds the highest reading by more than `slack`. The kernel's
 * numbers do not change together: the charge is ahead by up to a batch per CPU, and the statistics
 * lag. For a small program the error would be a large part of the result; memory.h makes its
 * readings exact in another way. If `other` changed between the readings, as when a file is read,
 * this change is added to the slack: pages on their way into the cache are charged, but not yet
 * counted as cache.
 *
 * `other` is read from the statistics. Charge minus resident would be a simpler formula. The result
 * would be wrong while a process gives back much memory, because its pages are no longer resident
 * but still charged.
 */
#ifndef CAIRN_LAUNCH_PEAK_H
#define CAIRN_LAUNCH_PEAK_H

#include "base/base.h"

enum peak_charged {
    PEAK_CHARGED_UNKNOWN,  /* `other` and `charged_max` are not valid */
    PEAK_CHARGED_INTERVAL, /* charged_max is the maximum since the last reading */
    PEAK_CHARGED_LIFETIME, /* charged_max is the maximum since the beginning */
};

struct peak_reading {
    uint64_t anon_bytes;
    uint64_t shmem_bytes;
    uint64_t lazy_bytes;
    /* A lower bound for the memory of the tree at some moment since the last reading, for example
     * from the highest sizes of its processes. 0 if no bound is known. */
    uint64_t at_least_bytes;
    uint64_t other_bytes;
    uint64_t charged_max_bytes;
    /* A counter of the whole machine. It does not change while no page cache is reclaimed. */
    uint64_t cache_taken;
    enum peak_charged charged;
};

/* A lower bound for the resident memory between two readings. The bound holds if no page cache was
 * reclaimed since the first of the two readings. */
struct peak_gap {
    uint64_t bytes;
    uint64_t less_lazy_bytes;
    uint64_t slack_bytes; /* margin by which the bound must exceed the peak */
    uint64_t cache_taken; /* peak_reading.cache_taken of the first reading */
};

struct peak {
    uint64_t slack_bytes;
    uint64_t peak_bytes;
    uint64_t less_lazy_bytes;
    uint64_t lazy_peak_bytes;
    uint64_t charged_peak_bytes;
    uint64_t other_max_bytes; /* the largest other_bytes of all readings */
    uint64_t count;
    uint64_t cache_taken_first;
    struct peak_reading last;
    struct peak_gap gap; /* the gap before the last reading */
};

/* Returns a peak without readings. `slack_bytes` is the slack of point 3 above: how far the
 * kernel's charge may be ahead of its statistics. */
struct peak peak_begin(uint64_t slack_bytes);
/* Adds a reading. Readings must be added in the order of their times. */
void peak_add(struct peak *peak, const struct peak_reading *reading);

/* Call this after the last reading. Closes the gap before the last reading (see the top of this
 * file). If charged_max is the maximum since the beginning, the whole lifetime of the program is
 * treated as one gap. */
void peak_end(struct peak *peak);

/* Returns whether the peak was measured. The last reading is taken after the program has ended. If
 * there was no other reading, the peak comes only from closing the gap before the last reading. The
 * peak then counts as measured only if it exceeds the slack. */
bool peak_is_known(const struct peak *peak);

/* Asserts the inequalities at the top of this file. */
void peak_check(const struct peak *peak);

#endif
