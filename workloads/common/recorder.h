/* recorder.h - nanoseconds per operation, batch by batch, as a log-linear histogram.
 *
 * Values are kept to 1/64 ns below 2 ns and to 1 in 128 above (the layout of HdrHistogram by Gil Tene), so a percentile
 * is within 0.8 % of the true one. Fixed memory, of which only what is used is touched; no allocation: a workload must
 * not allocate beside what it is about. One recorder belongs to one thread.
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

/* A batch of `operations` (at least 1) took `ns`. */
void recorder_add(struct recorder *recorder, uint64_t ns, uint64_t operations);

/* Adds all batches of `other`. */
void recorder_merge(struct recorder *recorder, const struct recorder *other);

/* ns per operation that `part` of the batches (0 to 1) do not exceed; 0 without any batch. */
double recorder_quantile(const struct recorder *recorder, double part);

#endif
