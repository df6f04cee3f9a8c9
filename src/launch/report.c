#define _GNU_SOURCE 1

#include "launch/report.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long to wait until a full pipe has room. */
#define PATIENCE_MS 10000

static uint64_t nanoseconds(struct timeval time)
{
    return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_usec * NS_PER_US;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

void report_add_usage(struct report *report, const struct rusage *usage)
{
    report->reaped++;
    report->user_ns += nanoseconds(usage->ru_utime);
    report->system_ns += nanoseconds(usage->ru_stime);
    report->minor_faults += (uint64_t)usage->ru_minflt;
    report->major_faults += (uint64_t)usage->ru_majflt;
    report->voluntary_switches += (uint64_t)usage->ru_nvcsw;
    report->involuntary_switches += (uint64_t)usage->ru_nivcsw;
    uint64_t largest = (uint64_t)usage->ru_maxrss * 1024;
    if (largest > report->largest_process_bytes)
        report->largest_process_bytes = largest;
}

void report_subtract_usage(struct report *report, const struct rusage *before)
{
    report->user_ns = less(report->user_ns, nanoseconds(before->ru_utime));
    report->system_ns = less(report->system_ns, nanoseconds(before->ru_stime));
    report->minor_faults = less(report->minor_faults, (uint64_t)before->ru_minflt);
    report->major_faults = less(report->major_faults, (uint64_t)before->ru_majflt);
    report->voluntary_switches = less(report->voluntary_switches, (uint64_t)before->ru_nvcsw);
    report->involuntary_switches = less(report->involuntary_switches, (uint64_t)before->ru_nivcsw);
}

void report_add_schedule(struct report *report, const struct process_schedule *schedule)
{
    report->ran_ns += schedule->ran_ns;
    report->queued_ns += schedule->queued_ns;
}

void report_subtract_schedule(struct report *report, const struct process_schedule *before)
{
    report->ran_ns = less(report->ran_ns, before->ran_ns);
    report->queued_ns = less(report->queued_ns, before->queued_ns);
}

static void add_unsigned_or_null(struct text *text, const char *key, bool present, uint64_t value)
{
    if (present)
        text_add_json_unsigned(text, key, value);
    else
        text_add_json_null(text, key);
}

static void add_text_or_null(struct text *text, const char *key, const char *value)
{
    if (value != NULL)
        text_add_json_text(text, key, value);
    else
        text_add_json_null(text, key);
}

static void add_division(struct text *text, const struct division_result *division)
{
    if (division == NULL) {
        text_add_json_null(text, "division");
        return;
    }
    text_add_json_key(text, "division");
    text_add(text, "{");
    text_add_json_unsigned(text, "processes", division->processes);
    text_add_json_unsigned(text, "total_bytes", division->total_bytes);
    text_add_json_unsigned(text, "largest_bytes", division->largest_bytes);
    add_unsigned_or_null(text, "copied_bytes", division->has_copied, division->copied_bytes);
    text_add_json_unsigned(text, "child_pages", division->child_pages);
    text_add_json_unsigned(text, "parent_pages", division->parent_pages);
    text_add(text, "}");
}

static void add_memory(struct text *text, const struct report *report)
{
    const struct peak *peak = &report->peak;
    /* If exec failed, the child never became PROG. It was a copy of the launcher, and the memory of
     * the launcher is not reported. */
    bool known = peak_is_known(peak) && report->exec_errno == 0;
    text_add_json_key(text, "memory");
    text_add(text, "{");
    text_add_json_text(text, "method", memory_method_name(report->memory_method));
    add_text_or_null(text, "reason", report->memory_reason);
    add_unsigned_or_null(text, "peak_bytes", known, peak->peak_bytes);
    add_unsigned_or_null(text, "peak_less_lazy_bytes", known, peak->less_lazy_bytes);
    add_unsigned_or_null(text, "lazy_peak_bytes", known, peak->lazy_peak_bytes);
    add_unsigned_or_null(text, "charged_peak_bytes", peak->charged_peak_bytes > 0,
                         peak->charged_peak_bytes);
    add_division(text, known ? report->division : NULL);
    text_add_json_unsigned(text, "samples", peak->count);
    text_add_json_unsigned(text, "sampling_cpu_ns", report->sampling_cpu_ns);
    text_add(text, "}");
}

static void add_counters(struct text *text, const struct counters *counters)
{
    if (counters == NULL) {
        text_add_json_null(text, "counters");
        return;
    }
    text_add_json_key(text, "counters");
    text_add(text, "{");
    for (size_t i = 0; i < COUNTERS_COUNT; i++)
        add_unsigned_or_null(text, counters_names[i], counters->present[i], counters->values[i]);
    text_add_json_bool(text, "user_mode_only", counters->user_mode_only);
    text_add_json_bool(text, "scaled", counters->scaled);
    text_add(text, "}");
}

void report_format(const struct report *report, struct text *text)
{
    int status = report->status;
    bool executed = report->exec_errno == 0;
    bool signaled = executed && WIFSIGNALED(status);
    text_add(text, "{");
    text_add_json_unsigned(text, "schema", REPORT_SCHEMA);
    text_add_json_unsigned(text, "pid", (uint64_t)report->pid);
    add_unsigned_or_null(text, "exit_code", executed && WIFEXITED(status),
                         (uint64_t)WEXITSTATUS(status));
    add_unsigned_or_null(text, "signal", signaled, (uint64_t)WTERMSIG(status));
    text_add_json_bool(text, "core_dumped", signaled && WCOREDUMP(status));
    text_add_json_bool(text, "timed_out", report->timed_out);
    add_unsigned_or_null(text, "interrupted_by", report->interrupted_by != 0,
                         (uint64_t)report->interrupted_by);
    add_unsigned_or_null(text, "exec_errno", !executed, (uint64_t)report->exec_errno);
    add_text_or_null(text, "exec_error", executed ? NULL : strerror(report->exec_errno));
    add_unsigned_or_null(text, "wall_ns", report->has_wall, report->wall_ns);
    text_add_json_unsigned(text, "user_ns", report->user_ns);
    text_add_json_unsigned(text, "system_ns", report->system_ns);
    text_add_json_unsigned(text, "minor_faults", report->minor_faults);
    text_add_json_unsigned(text, "major_faults", report->major_faults);
    text_add_json_unsigned(text, "voluntary_switches", report->voluntary_switches);
    text_add_json_unsigned(text, "involuntary_switches", report->involuntary_switches);
    /* A process that ended has run, so 0 means that the kernel does not count these times. */
    add_unsigned_or_null(text, "ran_ns", report->ran_ns > 0, report->ran_ns);
    add_unsigned_or_null(text, "queued_ns", report->ran_ns > 0, report->queued_ns);
    text_add_json_unsigned(text, "reaped", report->reaped);
    text_add_json_unsigned(text, "left_behind", report->left_behind);
    text_add_json_unsigned(text, "largest_process_bytes", report->largest_process_bytes);
    add_memory(text, report);
    add_counters(text, report->counters);
    text_add(text, "}\n");
}

bool report_write(const struct report *report, int fd)
{
    char data[PIPE_BUF];
    struct text text = text_over(data, sizeof data);
    report_format(report, &text);
    if (text.truncated) {
        errno = EMSGSIZE;
        return false;
    }
    for (;;) {
        ssize_t written = write(fd, data, text.length);
        if (written == (ssize_t)text.length)
            return true;
        if (written >= 0) { /* the disk is full */
            errno = ENOSPC;
            return false;
        }
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        bool again = errno == EINTR || (errno == EAGAIN && poll(&ready, 1, PATIENCE_MS) > 0);
        if (!again)
            return false;
    }
}
