/* report.h - what became of the command, as one line of JSON.
 *
 * Always:
 *
 *     the line is written by one write(), ends with '\n', and is shorter than a pipe takes at once (PIPE_BUF)
 *     what was not measured is null, never 0
 */
#ifndef CAIRN_LAUNCH_REPORT_H
#define CAIRN_LAUNCH_REPORT_H

#include "base/base.h"
#include "base/text.h"
#include "launch/counters.h"
#include "launch/memory.h"
#include "launch/peak.h"

#include <sys/resource.h>
#include <sys/types.h>

#define REPORT_SCHEMA 1

struct report {
    pid_t pid;
    int status; /* as from wait4() */
    bool timed_out;
    int interrupted_by; /* the first of SIGINT, SIGTERM, SIGHUP, SIGQUIT sent to us; 0: none */
    int exec_errno;     /* 0: exec succeeded */
    bool has_wall;
    uint64_t wall_ns;
    uint64_t user_ns; /* these, of the whole tree */
    uint64_t system_ns;
    uint64_t minor_faults;
    uint64_t major_faults;
    uint64_t voluntary_switches;
    uint64_t involuntary_switches;
    uint64_t largest_process_bytes;
    uint64_t reaped;
    uint64_t left_behind;

    enum memory_method memory_method;
    const char *memory_reason; /* why it is no cgroup; NULL: it is one, or none was wanted */
    struct peak peak;
    uint64_t sampling_cpu_ns;

    const struct counters *counters; /* NULL: not wanted */
};

/* Adds the resources of a process that was reaped, and of those it had reaped itself. */
void report_add_usage(struct report *report, const struct rusage *usage);

/* Takes away what the child had used before it became PROG. */
void report_subtract_usage(struct report *report, const struct rusage *before);

void report_format(const struct report *report, struct text *text);

/* False with errno set. */
bool report_write(const struct report *report, int fd);

#endif
