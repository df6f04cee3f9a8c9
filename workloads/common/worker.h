/* worker.h - what main() needs of the workers; workloads themselves need workload.h alone. */
#ifndef WORKLOAD_WORKER_H
#define WORKLOAD_WORKER_H

#include "common/workload.h"

/* The sum over all workers, and what happened while they ran. */
struct outcome {
    struct recorder recorder;
    uint64_t checksum;
    uint64_t damaged;
    uint64_t
        live_peak_bytes; /* exact with one worker; else to within what each worker allocates in a batch */
    uint64_t busy_ns;
    uint64_t idle_ns;
    uint64_t minor_faults;
};

/* Runs workload.work() in settings.threads threads, begun together; `outcome` is zero at first. Worker 0 is the calling
 * thread, so that a workload of one thread is a program of one thread. */
void workers_run(struct outcome *outcome);

#endif
