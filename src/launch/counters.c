#define _GNU_SOURCE 1

#include "launch/counters.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

struct event {
    uint32_t type;
    uint64_t config;
    bool in_kernel_only; /* this event never happens in user mode */
};

static const struct event events[COUNTERS_COUNT] = {
    {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, false},
    {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES, true},
    {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS, true},
    {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, false},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, false},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, false},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS, false},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES, false},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES, false},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES, false},
    {PERF_TYPE_HW_CACHE,
     PERF_COUNT_HW_CACHE_DTLB | PERF_COUNT_HW_CACHE_OP_READ << 8 |
         PERF_COUNT_HW_CACHE_RESULT_MISS << 16,
     false},
};

const char *const counters_names[COUNTERS_COUNT] = {
    "task-clock",       "context-switches", "cpu-migrations",   "page-faults",
    "cycles",           "instructions",     "branches",         "branch-misses",
    "cache-references", "cache-misses",     "dTLB-load-misses",
};

static int open_event(const struct event *event, pid_t pid, bool user_mode_only)
{
    struct perf_event_attr attr = {
        .type = event->type,
        .size = sizeof attr,
        .config = event->config,
        .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
        .disabled = 1,
        .inherit = 1,
        .enable_on_exec = 1,
        .exclude_kernel = user_mode_only,
        .exclude_hv = user_mode_only,
    };
    return (int)syscall(SYS_perf_event_open, &attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

void counters_open(struct counters *counters, pid_t pid)
{
    *counters = (struct counters){0};
    for (size_t i = 0; i < COUNTERS_COUNT; i++) {
        counters->fds[i] = open_event(&events[i], pid, false);
        if (counters->fds[i] >= 0 || (errno != EACCES && errno != EPERM))
            continue;
        /* perf_event_paranoid is 2 or higher, so events inside the kernel may not be counted. */
        if (!events[i].in_kernel_only)
            counters->fds[i] = open_event(&events[i], pid, true);
        if (counters->fds[i] >= 0)
            counters->user_mode_only = true;
    }
}

void counters_read(struct counters *counters)
{
    for (size_t i = 0; i < COUNTERS_COUNT; i++) {
        struct {
            uint64_t value;
            uint64_t enabled_ns;
            uint64_t running_ns;
        } count;
        if (counters->fds[i] < 0)
            continue;
        /* If running_ns is 0, the counter never got onto the hardware, or PROG never reached exec.
         * Nothing was counted then, which is different from a count of 0. */
        if (read(counters->fds[i], &count, sizeof count) == (ssize_t)sizeof count &&
            count.running_ns > 0) {
            counters->present[i] = true;
            counters->values[i] = count.value;
            if (count.running_ns < count.enabled_ns) {
                double part = (double)count.running_ns / (double)count.enabled_ns;
                counters->values[i] = (uint64_t)((double)count.value / part);
                counters->scaled = true;
            }
        }
        close(counters->fds[i]);
        counters->fds[i] = -1;
    }
}
