/* report.h - the result of the command as one line of JSON.
 *
 * launch.c fills a struct report while the command runs and writes it at the end. Always:
 *
 *     the line is written by one write(), ends with '\n', and fits into PIPE_BUF, so that a pipe
 *     takes it in one piece
 *     a value that was not measured is null, never 0
 */
#ifndef CAIRN_LAUNCH_REPORT_H
#define CAIRN_LAUNCH_REPORT_H

#include "base/base.h"
#include "base/text.h"
#include "launch/counters.h"
#include "launch/division.h"
#include "launch/memory.h"
#include "launch/peak.h"
#include "launch/processes.h"

#include <sys/resource.h>
#include <sys/types.h>

#define REPORT_SCHEMA 1

struct report {
    pid_t pid;
    int status; /* as returned by wait4() */
    bool timed_out;
    /* The first of SIGINT, SIGTERM, SIGHUP and SIGQUIT that was sent to us. 0 if there was none. */
    int interrupted_by;
    int exec_errno; /* 0 if exec succeeded */
    bool has_wall;
    uint64_t wall_ns;
    uint64_t user_ns; /* the fields from here to `reaped` are of the whole tree */
    uint64_t system_ns;
    uint64_t minor_faults;
    uint64_t major_faults;
    uint64_t voluntary_switches;
    uint64_t involuntary_switches;
    uint64_t ran_ns; /* sum over the first threads of all reaped processes */
    uint64_t queued_ns;
    uint64_t largest_process_bytes; /* a maximum over the processes, not a sum */
    uint64_t reaped;
    uint64_t left_behind;

    enum memory_method memory_method;
    const char *memory_reason; /* why there is no cgroup; or NULL */
    struct peak peak;
    const struct division_result *division; /* NULL if not requested or not known */
    uint64_t sampling_cpu_ns;

    const struct counters *counters; /* NULL if not requested */
};

/* Adds the resources used by a process that was reaped, including those of its own reaped
 * children. */
void report_add_usage(struct report *report, const struct rusage *usage);

/* report_add_schedule() adds the times of a process that was reaped. report_subtract_schedule()
 * subtracts the times that the child had before it became PROG. */
void report_add_schedule(struct report *report, const struct process_schedule *schedule);
void report_subtract_schedule(struct report *report, const struct process_schedule *before);

/* Subtracts the resources that the child had used before it became PROG. */
void report_subtract_usage(struct report *report, const struct rusage *before);

/* Appends the line to `text`. */
void report_format(const struct report *report, struct text *text);

/* Writes the line to `fd`. Returns false with errno set if that fails. */
bool report_write(const struct report *report, int fd);

#endif
