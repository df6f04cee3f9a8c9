/* options.h - parses the command line of cairn-launch.
 *
 * main() calls options_parse() once. After it returned OPTIONS_RUN, always:
 *
 *     report_fd >= 0, and command[0] != NULL
 *     edits[0 .. edit_count) are in the order given: "KEY=VALUE" sets a variable, "KEY" removes one
 *     every string points into argv: nothing was copied or allocated
 *
 * Parsing does not check whether a folder, file or CPU exists. If one does not, the code that uses
 * it reports the error later.
 */
#ifndef CAIRN_LAUNCH_OPTIONS_H
#define CAIRN_LAUNCH_OPTIONS_H

#include "base/base.h"

#include <sched.h>

extern const char options_help[];

enum options_task {
    OPTIONS_RUN,
    OPTIONS_TOUCH,
    OPTIONS_HELP,
    OPTIONS_VERSION,
    OPTIONS_WRONG, /* see `complaint` and `object` */
};

enum options_memory {
    OPTIONS_MEMORY_AUTO,
    OPTIONS_MEMORY_CGROUP,
    OPTIONS_MEMORY_SAMPLED,
    OPTIONS_MEMORY_NONE,
};

struct options {
    int report_fd;
    enum options_memory memory;
    uint64_t timeout_ns; /* 0 if there is no limit */
    uint64_t grace_ns;   /* time from SIGTERM to SIGKILL */
    uint64_t touch_bytes;
    bool terminal;
    bool counters;
    bool adaptive_period; /* the period of the clock samples is adaptive */
    bool divides_memory;
    bool no_core;
    bool wait_descendants;
    bool has_cpus;
    cpu_set_t cpus;
    const char *folder; /* this path and the next ones are NULL if not given */
    const char *stdin_path;
    const char *stdout_path;
    const char *stderr_path;
    const char *cpu_samples_path;
    const char *reaped_path;
    const char *series_path;
    char **edits; /* changes of PROG's environment */
    size_t edit_count;
    char **command; /* ends with NULL */
    const char *complaint;
    const char *object; /* the argument that is wrong, or NULL */
};

/* Parses argv. The function also overwrites argv: it collects the edits of the environment at the
 * front of argv, in the places of arguments that it has already parsed. */
enum options_task options_parse(struct options *options, char **argv);

/* Parses a decimal number of seconds: "1.5" gives 1500000000. Returns false if the text is not such
 * a number, if the number is larger than 10^9, or if it has more than nine decimals. */
bool options_parse_seconds(const char *text, uint64_t *ns);

/* Parses a list such as "0,2-3". Returns false if the text is not such a list. */
bool options_parse_cpus(const char *text, cpu_set_t *cpus);

#endif
