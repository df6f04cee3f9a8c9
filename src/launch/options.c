#define _GNU_SOURCE 1

#include "launch/options.h"

#include <limits.h>
#include <string.h>

#define GRACE_DEFAULT_NS (2 * NS_PER_S)
#define SECONDS_MAX      UINT64_C(1000000000)

const char options_help[] =
    "Usage: cairn-launch [option]... -- PROG [ARG]...\n"
    "       cairn-launch --touch BYTES\n"
    "\n"
    "Starts PROG, waits until it has ended, and ends all processes that it left behind. Writes "
    "one\n"
    "line of JSON about the whole tree of processes: time, peak memory, page faults, exit status.\n"
    "\n"
    "  --report-fd N        write the line of JSON to this descriptor (required); PROG does not\n"
    "                       inherit it\n"
    "  --timeout SECONDS    send SIGTERM to PROG after this time\n"
    "  --grace SECONDS      time from SIGTERM to SIGKILL; default 2\n"
    "  --memory METHOD      how to find the peak: auto (default), cgroup, sampled or none\n"
    "  --memory-series FILE write the memory at some moments, with its integral over time; "
    "emptied\n"
    "                       first, created for its owner only\n"
    "  --divide-memory      divide the memory near the peak among the processes\n"
    "  --terminal           give PROG the terminal, with job control; otherwise PROG has a "
    "session\n"
    "                       of its own and no terminal\n"
    "  --setenv KEY=VALUE   set a variable for PROG only; repeatable\n"
    "  --unsetenv KEY       remove a variable for PROG only; repeatable\n"
    "  --chdir FOLDER       start PROG in this folder; the FILEs below are relative to the "
    "caller's\n"
    "  --cpus LIST          CPUs that PROG may use, for example 0,2-3\n"
    "  --stdin FILE         PROG's standard input\n"
    "  --stdout FILE        PROG's standard output; emptied first, created for its owner only\n"
    "  --stderr FILE        PROG's standard error; emptied and created like that of --stdout, and\n"
    "                       may be the same file\n"
    "  --wait-descendants   measure until all descendants of PROG have ended, too\n"
    "  --counters           read performance counters of the whole tree\n"
    "  --cpu-samples FILE   write clock samples of all processors; emptied first, created for its\n"
    "                       owner only\n"
    "  --adaptive-period    take these samples more often at first, and at random moments\n"
    "  --endings FILE       append to this file how each process ended that cairn-launch reaped\n"
    "  --no-core            PROG and its children leave no core dumps\n"
    "  --touch BYTES        start no PROG: write to this much memory once, and give it back\n"
    "  --help, --version\n"
    "\n"
    "Exit status: 0 if the line was written, whatever happened to PROG; 125 if cairn-launch "
    "itself\n"
    "failed.\n";

/* Parses the digits at *s and moves *s past them. Returns false if there are no digits or if the
 * number does not fit into 64 bits. */
static bool parse_digits(const char **s, uint64_t *number)
{
    uint64_t value = 0;
    const char *at = *s;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *at - '0', &value))
            return false;
    }
    bool any = at != *s;
    *s = at;
    *number = value;
    return any;
}

static bool parse_number(const char *text, uint64_t *number)
{
    return parse_digits(&text, number) && *text == '\0';
}

bool options_parse_seconds(const char *text, uint64_t *ns)
{
    uint64_t seconds;
    if (!parse_digits(&text, &seconds) || seconds > SECONDS_MAX)
        return false;
    *ns = seconds * NS_PER_S;
    if (*text != '.')
        return *text == '\0';
    text++;
    uint64_t unit = NS_PER_S / 10;
    for (; *text >= '0' && *text <= '9' && unit > 0; text++, unit /= 10)
        *ns += (uint64_t)(*text - '0') * unit;
    return *text == '\0' && unit < NS_PER_S / 10;
}

bool options_parse_cpus(const char *text, cpu_set_t *cpus)
{
    CPU_ZERO(cpus);
    for (;; text++) {
        uint64_t first;
        if (!parse_digits(&text, &first))
            return false;
        uint64_t last = first;
        if (*text == '-') {
            text++;
            if (!parse_digits(&text, &last))
                return false;
        }
        if (first > last || last >= CPU_SETSIZE)
            return false;
        for (uint64_t cpu = first; cpu <= last; cpu++)
            CPU_SET((size_t)cpu, cpus);
        if (*text == '\0')
            return true;
        if (*text != ',')
            return false;
    }
}

static bool parse_memory(const char *text, enum options_memory *memory)
{
    static const char *const names[] = {
        [OPTIONS_MEMORY_AUTO] = "auto",
        [OPTIONS_MEMORY_CGROUP] = "cgroup",
        [OPTIONS_MEMORY_SAMPLED] = "sampled",
        [OPTIONS_MEMORY_NONE] = "none",
    };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *memory = (enum options_memory)i;
            return true;
        }
    }
    return false;
}

static enum options_task wrong(struct options *options, const char *complaint, const char *object)
{
    options->complaint = complaint;
    options->object = object;
    return OPTIONS_WRONG;
}

/* Stores the value of an option. Returns NULL on success, or the error message if `value` does not
 * suit option `name`. */
static const char *take_value(struct options *options, const char *name, char *value)
{
    uint64_t number;
    if (strcmp(name, "--report-fd") == 0) {
        if (!parse_number(value, &number) || number > INT_MAX)
            return "--report-fd needs the number of a descriptor, not";
        options->report_fd = (int)number;
    } else if (strcmp(name, "--timeout") == 0) {
        if (!options_parse_seconds(value, &options->timeout_ns) || options->timeout_ns == 0)
            return "--timeout needs a number of seconds above 0, such as 1.5, not";
    } else if (strcmp(name, "--grace") == 0) {
        if (!options_parse_seconds(value, &options->grace_ns))
            return "--grace needs a number of seconds, such as 0.5, not";
    } else if (strcmp(name, "--memory") == 0) {
        if (!parse_memory(value, &options->memory))
            return "--memory is auto, cgroup, sampled or none, not";
    } else if (strcmp(name, "--setenv") == 0) {
        if (value[0] == '=' || strchr(value, '=') == NULL)
            return "--setenv needs KEY=VALUE, not";
        options->edits[options->edit_count++] = value;
    } else if (strcmp(name, "--unsetenv") == 0) {
        if (value[0] == '\0' || strchr(value, '=') != NULL)
            return "--unsetenv needs the name of a variable, not";
        options->edits[options->edit_count++] = value;
    } else if (strcmp(name, "--cpus") == 0) {
        if (!options_parse_cpus(value, &options->cpus))
            return "--cpus needs a list such as 0,2-3, not";
        options->has_cpus = true;
    } else if (strcmp(name, "--touch") == 0) {
        if (!parse_number(value, &options->touch_bytes) || options->touch_bytes == 0)
            return "--touch needs a number of bytes above 0, not";
    } else if (strcmp(name, "--chdir") == 0) {
        options->folder = value;
    } else if (strcmp(name, "--stdin") == 0) {
        options->stdin_path = value;
    } else if (strcmp(name, "--stdout") == 0) {
        options->stdout_path = value;
    } else if (strcmp(name, "--stderr") == 0) {
        options->stderr_path = value;
    } else if (strcmp(name, "--cpu-samples") == 0) {
        options->cpu_samples_path = value;
    } else if (strcmp(name, "--memory-series") == 0) {
        options->series_path = value;
    } else if (strcmp(name, "--endings") == 0) {
        options->reaped_path = value;
    }
    return NULL;
}

static bool needs_value(const char *name)
{
    static const char *const names[] = {
        "--report-fd", "--timeout", "--grace",       "--memory",  "--setenv",
        "--unsetenv",  "--cpus",    "--touch",       "--chdir",   "--stdin",
        "--stdout",    "--stderr",  "--cpu-samples", "--endings", "--memory-series",
    };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

enum options_task options_parse(struct options *options, char **argv)
{
    *options = (struct options){
        .report_fd = -1,
        .grace_ns = GRACE_DEFAULT_NS,
        /* An edit is stored in one place of argv but came from two (option and value). So storing
         * it never overwrites an argument that is not parsed yet. */
        .edits = argv[0] == NULL ? argv : argv + 1,
    };
    if (argv[0] == NULL)
        return wrong(options, "there are no arguments; 'cairn-launch --help' lists them", NULL);

    char **next = argv + 1;
    for (; *next != NULL && strcmp(*next, "--") != 0; next++) {
        const char *name = *next;
        if (strcmp(name, "--help") == 0)
            return OPTIONS_HELP;
        if (strcmp(name, "--version") == 0)
            return OPTIONS_VERSION;
        if (strcmp(name, "--terminal") == 0) {
            options->terminal = true;
        } else if (strcmp(name, "--counters") == 0) {
            options->counters = true;
        } else if (strcmp(name, "--adaptive-period") == 0) {
            options->adaptive_period = true;
        } else if (strcmp(name, "--divide-memory") == 0) {
            options->divides_memory = true;
        } else if (strcmp(name, "--no-core") == 0) {
            options->no_core = true;
        } else if (strcmp(name, "--wait-descendants") == 0) {
            options->wait_descendants = true;
        } else if (needs_value(name)) {
            char *value = *++next;
            if (value == NULL)
                return wrong(options, "a value is missing after", name);
            const char *complaint = take_value(options, name, value);
            if (complaint != NULL)
                return wrong(options, complaint, value);
        } else if (name[0] == '-') {
            return wrong(options, "'cairn-launch --help' lists the options; there is no", name);
        } else {
            return wrong(options, "'--' must stand before the command", name);
        }
    }

    options->command = *next == NULL ? next : next + 1;
    if (options->touch_bytes > 0) {
        if (*options->command != NULL)
            return wrong(options, "--touch takes no command", *options->command);
        return OPTIONS_TOUCH;
    }
    if (*options->command == NULL)
        return wrong(options, "a command is missing after '--'; 'cairn-launch --help' shows how",
                     NULL);
    if (options->report_fd < 0)
        return wrong(options, "--report-fd is missing; 'cairn-launch --help' shows how", NULL);
    return OPTIONS_RUN;
}
