#define _GNU_SOURCE 1

#include "launch/report.h"

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

static bool says(const struct report *report, const char *part)
{
    char data[PIPE_BUF];
    struct text text = text_over(data, sizeof data);
    report_format(report, &text);
    bool found = !text.truncated && strstr(data, part) != NULL;
    if (!found)
        fprintf(stderr, "'%s' is not in the report %s", part, data);
    return found;
}

TEST(report_tells_an_exit_code_from_a_signal)
{
    struct report report = {.status = 3 << 8};
    CHECK(says(&report, "\"exit_code\":3,\"signal\":null,\"core_dumped\":false"));
    report.status = SIGSEGV | 0x80;
    CHECK(says(&report, "\"exit_code\":null,\"signal\":11,\"core_dumped\":true"));
}

/* A child that could not exec ends with an exit code that is not the program's. */
TEST(report_of_a_failed_exec_has_no_exit_code)
{
    struct report report = {.status = 127 << 8, .exec_errno = ENOENT};
    CHECK(says(&report, "\"exit_code\":null,\"signal\":null"));
    CHECK(says(&report, "\"exec_errno\":2,\"exec_error\":\"No such file or directory\""));
    /* This peak would be that of the forked launcher, not of the program. */
    report.peak = (struct peak){.peak_bytes = 47104, .count = 2};
    CHECK(says(&report, "\"peak_bytes\":null"));
}

TEST(report_holds_null_for_values_that_were_not_measured)
{
    struct counters counters = {.present = {true}, .values = {12}};
    struct report report = {.counters = &counters};
    CHECK(says(&report, "\"wall_ns\":null"));
    CHECK(says(&report, "\"method\":\"not measured\",\"reason\":null,\"peak_bytes\":null"));
    CHECK(says(&report, "\"task-clock\":12,\"context-switches\":null"));
    report.counters = NULL;
    CHECK(says(&report, "\"counters\":null}\n"));
}

TEST(report_adds_and_subtracts_usage)
{
    struct report report = {0};
    struct rusage usage = {.ru_utime = {1, 5},
                           .ru_stime = {0, 7},
                           .ru_minflt = 10,
                           .ru_majflt = 2,
                           .ru_nvcsw = 3,
                           .ru_nivcsw = 4,
                           .ru_maxrss = 100};
    report_add_usage(&report, &usage);
    usage.ru_maxrss = 50;
    report_add_usage(&report, &usage);
    struct rusage before = {.ru_utime = {0, 5}, .ru_stime = {9, 0}, .ru_minflt = 1};
    report_subtract_usage(&report, &before);
    CHECK(report.user_ns == 2 * NS_PER_S + 5 * NS_PER_US);
    CHECK(report.system_ns == 0); /* never below 0 */
    CHECK(report.minor_faults == 19 && report.major_faults == 4);
    CHECK(report.voluntary_switches == 6 && report.involuntary_switches == 8);
    CHECK(report.largest_process_bytes == 100 * 1024);
    CHECK(report.reaped == 2);
}

TEST(report_adds_and_subtracts_the_times_of_the_scheduler)
{
    struct report report = {0};
    CHECK(says(&report, "\"ran_ns\":null,\"queued_ns\":null"));
    report_add_schedule(&report, &(struct process_schedule){.ran_ns = 5, .queued_ns = 70});
    report_add_schedule(&report, &(struct process_schedule){.ran_ns = 6, .queued_ns = 0});
    report_subtract_schedule(&report, &(struct process_schedule){.ran_ns = 1, .queued_ns = 9});
    CHECK(says(&report, "\"ran_ns\":10,\"queued_ns\":61"));
    report_subtract_schedule(&report, &(struct process_schedule){.ran_ns = 1, .queued_ns = 900});
    CHECK(says(&report, "\"ran_ns\":9,\"queued_ns\":0"));
}

/* The longest report must fit into one atomic write to a pipe. */
TEST(report_with_the_largest_numbers_fits)
{
    struct counters counters;
    for (size_t i = 0; i < COUNTERS_COUNT; i++) {
        counters.present[i] = true;
        counters.values[i] = UINT64_MAX;
    }
    char reason[192];
    memset(reason, '\x01', sizeof reason - 1);
    reason[sizeof reason - 1] = '\0';
    struct report report = {
        .pid = INT_MAX,
        .exec_errno = 84,
        .has_wall = true,
        .wall_ns = UINT64_MAX,
        .user_ns = UINT64_MAX,
        .system_ns = UINT64_MAX,
        .minor_faults = UINT64_MAX,
        .major_faults = UINT64_MAX,
        .reaped = UINT64_MAX,
        .voluntary_switches = UINT64_MAX,
        .involuntary_switches = UINT64_MAX,
        .ran_ns = UINT64_MAX,
        .queued_ns = UINT64_MAX,
        .largest_process_bytes = UINT64_MAX,
        .left_behind = UINT64_MAX,
        .memory_reason = reason,
        .counters = &counters,
        .sampling_cpu_ns = UINT64_MAX,
        .peak = {.peak_bytes = UINT64_MAX,
                 .less_lazy_bytes = UINT64_MAX,
                 .lazy_peak_bytes = UINT64_MAX,
                 .charged_peak_bytes = UINT64_MAX,
                 .count = UINT64_MAX},
    };
    CHECK(says(&report, "}\n"));
}

TEST(report_that_cannot_be_written_is_an_error)
{
    struct report report = {0};
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    errno = 0;
    CHECK(!report_write(&report, ends[1]));
    CHECK(errno == EPIPE);
    close(ends[1]);
    CHECK(!report_write(&report, ends[1]));
    CHECK(errno == EBADF);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (full >= 0) {
        CHECK(!report_write(&report, full));
        CHECK(errno == ENOSPC);
        close(full);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
