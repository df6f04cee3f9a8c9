/* options.h - what the command line asks for.
 *
 * After OPTIONS_RUN, always:
 *
 *     report_fd >= 0, and command[0] is not NULL
 *     edits[0 .. edit_count) are in the order given: "KEY=VALUE" sets, "KEY" removes
 *     every text points into argv: nothing was copied or allocated
 *
 * Only parses: whether a folder, a file or a CPU exists is found out by those who use it.
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
    OPTIONS_WRONG, /* `complaint` and `object` say what is wrong */
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
    uint64_t timeout_ns; /* 0: no limit */
    uint64_t grace_ns;   /* from SIGTERM to SIGKILL */
    uint64_t touch_bytes;
    bool terminal;
    bool counters;
    bool has_cpus;
    cpu_set_t cpus;
    const char *folder; /* NULL, here and below: as the caller has it */
    const char *stdin_path;
    const char *stdout_path;
    const char *stderr_path;
    const char *whereabouts_path;
    char **edits; /* of PROG's environment */
    size_t edit_count;
    char **command; /* ends with NULL */
    const char *complaint;
    const char *object; /* what the complaint is about, or NULL */
};

/* Reorders argv: the edits of the environment are gathered at its front, over arguments that have been read.
 */
enum options_task options_parse(struct options *options, char **argv);

/* "1.5" -> 1500000000. Up to 10^9 seconds; more than nine decimals are refused. */
bool options_parse_seconds(const char *text, uint64_t *ns);

/* "0,2-3" */
bool options_parse_cpus(const char *text, cpu_set_t *cpus);

#endif
