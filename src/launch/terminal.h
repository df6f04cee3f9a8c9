/* terminal.h - puts PROG's process group into the foreground of the controlling terminal, and later
 * puts our own group there again.
 *
 * Always:
 *
 *     PROG gets the terminal only while our own group has the foreground, so that a launcher in the
 *     background never takes the terminal from another job
 *     after terminal_take_back() our own group has the foreground again, if PROG's group still had
 *     it
 *     without a controlling terminal, every function does nothing
 *
 * The caller must block SIGTTOU. Otherwise the kernel would stop a process that changes the
 * foreground group from the background.
 */
#ifndef CAIRN_LAUNCH_TERMINAL_H
#define CAIRN_LAUNCH_TERMINAL_H

#include "base/base.h"

#include <sys/types.h>

struct terminal {
    int fd;         /* -1 if there is no terminal */
    pid_t borrower; /* PROG's group; 0 if it has no terminal */
};

/* Opens the controlling terminal, if there is one. */
void terminal_open(struct terminal *terminal);
/* Puts process group `group` into the foreground, if our own group is there. */
void terminal_lend(struct terminal *terminal, pid_t group);
/* Puts our own group into the foreground again, if PROG's group still has it. */
void terminal_take_back(struct terminal *terminal);

#endif
