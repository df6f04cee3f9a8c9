/* child.h - starts the process that becomes PROG, the command to measure: from fork to exec.
 *
 * child_start() forks a child, which then waits. The launcher meanwhile prepares the child's
 * cgroup, counters and terminal. child_release() lets the child continue to exec. If cairn-launch
 * ends at any time, the kernel kills the child.
 *
 * The launcher's thread calls the functions of this file. The child shares only `state` with the
 * launcher:
 *
 *     state->started_ns != 0       exec was called; resources used earlier are not PROG's
 *     state->failed == CHILD_OK    no step has failed so far
 */
#ifndef CAIRN_LAUNCH_CHILD_H
#define CAIRN_LAUNCH_CHILD_H

#include "base/base.h"
#include "launch/cgroup.h"
#include "launch/options.h"
#include "launch/processes.h"
#include "launch/signals.h"

#include <sys/resource.h>
#include <sys/types.h>

enum child_step {
    CHILD_OK,
    CHILD_CGROUP,
    CHILD_FILES, /* `object` is the path */
    CHILD_FOLDER,
    CHILD_CPUS,
    CHILD_ENVIRONMENT,
    CHILD_EXEC,
};

/* The child writes all fields except `join`. The launcher may read `started_ns` at any time, and
 * the other fields once the child has ended. */
struct child_state {
    enum child_step failed;
    int error; /* errno of the step that failed */
    /* The argument for which the step failed. The pointer leads into argv, which has the same
     * address in both processes. */
    const char *object;
    _Atomic uint64_t started_ns;
    struct rusage before;              /* resources that the child used before exec */
    struct process_schedule scheduled; /* times of the child before exec */
    char join[CGROUP_JOIN_BYTES];      /* the launcher writes it before child_release() */
};

struct child {
    pid_t pid; /* also its process group */
    int go;    /* write end of a pipe; the child waits for one byte */
    struct child_state *state;
};

/* Forks the child. Returns false with errno set if that fails. */
bool child_start(struct child *child, const struct options *options, const struct signals *signals);
/* Lets the child continue to exec. */
void child_release(struct child *child);

/* Returns the beginning of the error message for a step that failed before exec. */
const char *child_step_complaint(enum child_step step);

#endif
