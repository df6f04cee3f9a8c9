/* counters.h - performance counters of a process and of all that it starts, from its exec on.
 *
 * Always:
 *
 *     a counter that the machine or its settings do not offer is absent, never 0
 *     counters that had to share the hardware are scaled to the whole time, and `scaled` is true
 *     where only user mode may be observed, `user_mode_only` is true, and events that happen in the kernel
 * alone (context switches, migrations) are absent, because they would read 0
 */
#ifndef CAIRN_LAUNCH_COUNTERS_H
#define CAIRN_LAUNCH_COUNTERS_H

#include "base/base.h"

#include <sys/types.h>

enum { COUNTERS_COUNT = 11 };

struct counters {
    int fds[COUNTERS_COUNT];      /* -1: absent */
    bool present[COUNTERS_COUNT]; /* after counters_read() */
    uint64_t values[COUNTERS_COUNT];
    bool user_mode_only;
    bool scaled;
};

/* The names that perf uses; task-clock counts nanoseconds. */
extern const char *const counters_names[COUNTERS_COUNT];

/* `pid` is a child that has not yet called exec. */
void counters_open(struct counters *counters, pid_t pid);

/* Once all processes have ended: a child adds its counts to its parent's when it ends. */
void counters_read(struct counters *counters);

#endif
