/* counters.h - performance counters of a process and its descendants, counted from its exec on.
 *
 * launch.c calls counters_open() before exec and counters_read() at the end. After counters_read(),
 * always:
 *
 *     a counter that the machine or its settings do not offer is absent, never 0
 *     `scaled` is true if the processor has fewer hardware counters than are open, so that each one
 *     counted only part of the time; the values are then estimates for the whole time
 *     `user_mode_only` is true if the kernel refuses to count events inside the kernel; context
 *     switches and migrations, which happen only there, are then absent, because their counts would
 *     be 0
 */
#ifndef CAIRN_LAUNCH_COUNTERS_H
#define CAIRN_LAUNCH_COUNTERS_H

#include "base/base.h"

#include <sys/types.h>

enum { COUNTERS_COUNT = 11 };

struct counters {
    int fds[COUNTERS_COUNT];      /* -1 if the counter is absent */
    bool present[COUNTERS_COUNT]; /* valid after counters_read() */
    uint64_t values[COUNTERS_COUNT];
    bool user_mode_only;
    bool scaled;
};

/* The names of the counters, which are those of perf. task-clock counts nanoseconds. */
extern const char *const counters_names[COUNTERS_COUNT];

/* Opens the counters. `pid` is a child that has not yet called exec. A counter that cannot be
 * opened is absent. */
void counters_open(struct counters *counters, pid_t pid);

/* Reads and closes the counters. Call it after all processes have ended, because the kernel adds a
 * child's counts to its parent's only when the child ends. */
void counters_read(struct counters *counters);

#endif
