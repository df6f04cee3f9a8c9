/* recorder.h - counts the time per operation of each batch in a log-linear histogram.
 *
 * The unit is 1/64 ns. Values below 2 ns are counted exactly in this unit, larger values with an
 * error of at most 1 in 128 (the layout of HdrHistogram by Gil Tene). So a percentile has an error
 * of at most 0.8 %. The size of a recorder is fixed, and only the used pages of it are touched. A
 * recorder never allocates, because a workload must call malloc only for the blocks that it
 * measures. A recorder belongs to one thread.
 */
#ifndef WORKLOAD_RECORDER_H
#define WORKLOAD_RECORDER_H

#include <stdint.h>

enum { RECORDER_STEPS = 128, RECORDER_DOUBLINGS = 42 };

struct recorder {
    uint64_t batches;
    uint64_t operations;
    uint64_t total_ns;
    uint64_t count[RECORDER_DOUBLINGS * RECORDER_STEPS];
};

/* Records a batch of `operations` (at least 1) that took `ns`. */
void recorder_add(struct recorder *recorder, uint64_t ns, uint64_t operations);

/* Adds all batches of `other`. */
void recorder_merge(struct recorder *recorder, const struct recorder *other);

/* Returns the quantile `part` (0 to 1) of the ns per operation: this fraction of the batches does
 * not exceed the result. Returns 0 if there are no batches. */
double recorder_quantile(const struct recorder *recorder, double part);

#endif
