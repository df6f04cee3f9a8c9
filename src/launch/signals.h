/* signals.h - the signals that cairn-launch waits for instead of being interrupted by them.
 *
 * Between signals_take() and the end of the process, always:
 *
 *     those that were not ignored by the caller are blocked and come out of `fd`, one at a time
 *     those that the caller ignores (nohup) stay ignored
 *     SIGCHLD has its default action, for ignoring it would lose the statuses of our children
 *
 * PROG starts with what the caller had: signals_restore().
 */
#ifndef CAIRN_LAUNCH_SIGNALS_H
#define CAIRN_LAUNCH_SIGNALS_H

#include "base/base.h"

#include <signal.h>

struct signals {
    int fd; /* becomes readable; close-on-exec */
    sigset_t inherited_mask;
    struct sigaction inherited_child; /* what the caller had for SIGCHLD */
};

bool signals_take(struct signals *signals);

/* In a child, before exec. */
void signals_restore(const struct signals *signals);

/* The next one that arrived, or 0 when there is none now. */
int signals_next(const struct signals *signals);

/* Stops us with `signal`, as the terminal would, or our whole process group; returns once continued. A
 * group that nobody could continue (an orphaned one) the kernel does not stop: false, at once. */
bool signals_stop_us(int signal, bool whole_group);

#endif
