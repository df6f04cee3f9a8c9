/* child.h - PROG, from fork to exec.
 *
 * The child waits after child_start(), so that its cgroup, its counters and the terminal can be made ready
 * around it; child_release() lets it go on to exec. If cairn-launch ends before, or at any later time, the
 * child is killed.
 *
 *     state->started_ns != 0       exec was tried; time and resources before it are not PROG's
 *     state->failed == CHILD_OK    nothing went wrong so far
 *
 * The child shares no memory with us but `state`.
 */
#ifndef CAIRN_LAUNCH_CHILD_H
#define CAIRN_LAUNCH_CHILD_H

#include "base/base.h"
#include "launch/cgroup.h"
#include "launch/options.h"
#include "launch/signals.h"

#include <sys/resource.h>
#include <sys/types.h>

enum child_step {
    CHILD_OK,
    CHILD_CGROUP,
    CHILD_FILES, /* `object` tells which */
    CHILD_FOLDER,
    CHILD_CPUS,
    CHILD_ENVIRONMENT,
    CHILD_EXEC,
};

/* Written by the child, but for `join`; `started_ns` may be read at any time, the rest once it has ended. */
struct child_state {
    enum child_step failed;
    int error;          /* errno of that step */
    const char *object; /* points into argv, at the same place in both processes */
    _Atomic uint64_t started_ns;
    struct rusage before;         /* what the child had used by then */
    char join[CGROUP_JOIN_BYTES]; /* written before child_release() */
};

struct child {
    pid_t pid; /* also its process group */
    int go;    /* a pipe; the child waits for a byte from it */
    struct child_state *state;
};

/* False with errno set. */
bool child_start(struct child *child, const struct options *options, const struct signals *signals);
void child_release(struct child *child);

/* What to complain about when a step before exec failed. */
const char *child_step_complaint(enum child_step step);

#endif
