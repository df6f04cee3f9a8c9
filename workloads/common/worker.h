/* worker.h - runs the workers for main(). Only main.c and worker.c include this file; workloads
 * include workload.h. */
#ifndef WORKLOAD_WORKER_H
#define WORKLOAD_WORKER_H

#include "common/workload.h"

/* The sums of the workers' results, and the resources used while the workers ran. */
struct outcome {
    struct recorder recorder;
    uint64_t checksum;
    uint64_t damaged;
    /* Exact with one worker. With several workers, the error is at most the bytes that all workers
     * together allocate in one batch each. */
    uint64_t live_peak_bytes;
    uint64_t busy_ns;
    uint64_t idle_ns;
    uint64_t minor_faults;
};

/* Runs workload.work() in settings.threads threads, which begin together. `outcome` must be
 * zero. Worker 0 is the calling thread, so that a workload with one thread is a program with
 * one thread. */
void workers_run(struct outcome *outcome);

#endif
