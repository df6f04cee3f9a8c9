/* signals.h - makes the signals that cairn-launch receives readable from a descriptor, so that they
 * do not interrupt the launcher.
 *
 * From signals_take() to the end of the process, always:
 *
 *     signals that the caller ignores (as under nohup) stay ignored
 *     all other signals are blocked and can be read from `fd`, one at a time
 *     SIGCHLD has its default action, because ignoring it would lose the exit statuses of our
 *     children
 *
 * PROG starts with the signal state of the caller: see signals_restore().
 */
#ifndef CAIRN_LAUNCH_SIGNALS_H
#define CAIRN_LAUNCH_SIGNALS_H

#include "base/base.h"

#include <signal.h>

struct signals {
    int fd; /* readable when a signal arrived; close-on-exec */
    sigset_t inherited_mask;
    struct sigaction inherited_child; /* the caller's action for SIGCHLD */
};

/* Blocks the signals and opens the descriptor. Returns false with errno set if that fails. */
bool signals_take(struct signals *signals);

/* Restores the caller's signal state. The child calls it before exec. */
void signals_restore(const struct signals *signals);

/* Returns the next signal that arrived, or 0 if there is none. */
int signals_next(const struct signals *signals);

/* Stops this process by `signal`, as the terminal would. If `whole_group` is true, stops our whole
 * process group. Returns true after SIGCONT has continued the process. The kernel does not stop an
 * orphaned process group, because no shell could continue it. In that case the function returns
 * false immediately. */
bool signals_stop_us(int signal, bool whole_group);

#endif
