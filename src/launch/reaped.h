/* reaped.h - writes one line about the end of each process that the launcher reaps.
 *
 * The launcher reaps PROG and every orphan of the tree, so it knows their status exactly. For each
 * it appends one line of JSON to a file. src/witness/record.h describes these lines: the processes
 * of the tree append to the same file how their own children ended. Always:
 *
 *     a line is written by one write() to a file that is open for appending
 *     a process is "killed" if it was alive when the launcher began to end the tree
 *
 * The launcher's thread calls these functions. A line that cannot be written is lost; the reader
 * then does not know how that process ended.
 */
#ifndef CAIRN_LAUNCH_REAPED_H
#define CAIRN_LAUNCH_REAPED_H

#include "base/base.h"

#include <sys/types.h>

struct reaped {
    int file; /* -1: nothing is written */
};

/* Opens the existing file `path`. Returns false with errno set if that fails. */
bool reaped_open(struct reaped *reaped, const char *path);

/* Writes that process `pid` ended with `status`, as returned by wait4(). `name` is the name of its
 * program, or "" if it is not known. */
void reaped_add(const struct reaped *reaped, pid_t pid, const char *name, int status, bool killed);

void reaped_close(struct reaped *reaped);

#endif
