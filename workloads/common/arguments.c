#include "common/arguments.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_MOST = 1024 };
/* The limit is 2^40, so that the number of bytes of a table with one entry per operation is below
 * 2^64. */
static const uint64_t operations_most = UINT64_C(1) << 40;

const char touch_choices[] = "none|header|all";

struct settings settings;

void workload_refuse(const char *format, ...)
{
    fprintf(stderr, "%s: ", workload.name);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "; %s --help lists all options\n", workload.name);
    exit(2);
}

const char *choice_name(const char *choices, uint64_t value, size_t *length)
{
    for (; value > 0; value--)
        choices = strchr(choices, '|') + 1;
    *length = strcspn(choices, "|");
    return choices;
}

static uint64_t read_choice(const char *name, const char *text, const char *choices)
{
    uint64_t value = 0;
    for (const char *word = choices;; value++) {
        size_t length = strcspn(word, "|");
        if (strlen(text) == length && strncmp(word, text, length) == 0)
            return value;
        if (word[length] == '\0')
            workload_refuse("%s takes %s, not '%s'", name, choices, text);
        word += length + 1;
    }
}

/* Parses a whole number. K, M, G, KiB, MiB or GiB may follow; they are powers of 1024. */
static uint64_t read_number(const char *name, const char *text, uint64_t least, uint64_t most)
{
    if (most == 0)
        most = UINT64_C(1) << 62;
    errno = 0;
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    bool wrong = errno != 0 || end == text || text[0] == '-' || text[0] == '+';
    static const char units[] = "KMG";
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL) {
        unsigned shift = 10 * (unsigned)(unit - units + 1);
        wrong = wrong || value > UINT64_MAX >> shift;
        value <<= shift;
        end++;
        if (strcmp(end, "iB") == 0 || strcmp(end, "B") == 0)
            end += strlen(end);
    }
    if (wrong || *end != '\0')
        workload_refuse("%s takes a whole number such as 1000 or 64K, not '%s'", name, text);
    if (value < least || value > most)
        workload_refuse("%s takes %llu to %llu, not %s", name, (unsigned long long)least,
                        (unsigned long long)most, text);
    return value;
}

static double read_seconds(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 1e-6) || value > 1e6)
        workload_refuse("--seconds takes a time such as 0.5 or 10, not '%s'", text);
    return value;
}

static void set(const char *name, const char *text)
{
    if (strcmp(name, "threads") == 0) {
        settings.threads =
            (unsigned)read_number("--threads", text, workload.threads_least, THREADS_MOST);
        return;
    }
    if (strcmp(name, "operations") == 0) {
        settings.operations = read_number("--operations", text, 1, operations_most);
        settings.seconds_ns = 0;
        return;
    }
    if (strcmp(name, "seconds") == 0) {
        settings.seconds_ns = (uint64_t)(read_seconds(text) * 1e9);
        settings.operations = 0;
        return;
    }
    if (strcmp(name, "seed") == 0) {
        settings.seed = read_number("--seed", text, 0, 0);
        return;
    }
    if (strcmp(name, "touch") == 0) {
        settings.touch = (enum touch)read_choice("--touch", text, touch_choices);
        return;
    }
    for (struct parameter *own = workload.own; own != NULL && own->name != NULL; own++) {
        if (strcmp(name, own->name) == 0) {
            char option[64];
            snprintf(option, sizeof option, "--%s", name);
            own->value = own->choices != NULL ? read_choice(option, text, own->choices)
                                              : read_number(option, text, own->least, own->most);
            return;
        }
    }
    workload_refuse("there is no option --%s", name);
}

static void help(void)
{
    printf("%s: %s\n\nOne operation: %s.\n\nusage: %s [OPTION VALUE]…", workload.name,
           workload.title, workload.operation, workload.name);
    if (workload.positional != NULL)
        printf(" [%s]", workload.positional);
    printf("\n\n  --%-14s default %u: number of threads\n", "threads", workload.threads);
    if (workload.operations > 0)
        printf("  --%-14s default %llu: operations over all threads\n", "operations",
               (unsigned long long)workload.operations);
    else
        printf(
            "  --%-14s operations over all threads; the default follows from the options below\n",
            "operations");
    printf("  --%-14s time to run instead of --operations; there is then no checksum\n", "seconds");
    printf("  --%-14s default 1: determines every size, lifetime and content\n", "seed");
    printf("  --%-14s default all: part of a block that is written and read back: none, "
           "header (8 bytes), all\n",
           "touch");
    for (const struct parameter *own = workload.own; own != NULL && own->name != NULL; own++) {
        size_t length = 0;
        if (own->choices != NULL) {
            const char *word = choice_name(own->choices, own->value, &length);
            printf("  --%-14s default %.*s: %s (%s)\n", own->name, (int)length, word, own->help,
                   own->choices);
        } else {
            printf("  --%-14s default %llu: %s\n", own->name, (unsigned long long)own->value,
                   own->help);
        }
    }
    printf("\nNumbers take K, M and G for powers of 1024. The result is one line of JSON.\n");
    exit(0);
}

/* Returns the name of the plain argument number `place`, or NULL if the workload has fewer plain
 * arguments. */
static const char *positional_name(unsigned place, char *name, size_t capacity)
{
    const char *word = workload.positional;
    for (; word != NULL && place > 0; place--) {
        word = strchr(word, ' ');
        if (word != NULL)
            word++;
    }
    if (word == NULL)
        return NULL;
    snprintf(name, capacity, "%.*s", (int)strcspn(word, " "), word);
    return name;
}

void arguments_read(int argc, char **argv)
{
    settings = (struct settings){.threads = workload.threads,
                                 .operations = workload.operations,
                                 .seed = 1,
                                 .touch = TOUCH_ALL};
    unsigned place = 0;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
            help();
        char name[64];
        if (strncmp(word, "--", 2) != 0) {
            if (positional_name(place++, name, sizeof name) == NULL)
                workload_refuse("'%s' is one argument too many", word);
            set(name, word);
            continue;
        }
        const char *value = strchr(word, '=');
        if (value != NULL)
            value++;
        else if (i + 1 < argc)
            value = argv[++i];
        else
            workload_refuse("%s needs a value", word);
        snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
        set(name, value);
    }
    if (settings.operations > 0 && settings.operations < settings.threads)
        workload_refuse("--operations %llu is less than the number of threads, %u",
                        (unsigned long long)settings.operations, settings.threads);
}

uint64_t parameter(const char *name)
{
    for (const struct parameter *own = workload.own; own != NULL && own->name != NULL; own++)
        if (strcmp(name, own->name) == 0)
            return own->value;
    workload_fail("has no parameter '%s'", name);
}

void workload_fail(const char *format, ...)
{
    char text[512];
    int length = snprintf(text, sizeof text, "%s: ", workload.name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + length, sizeof text - (size_t)length - 1, format, arguments);
    va_end(arguments);
    strcat(text, "\n");
    static atomic_flag said = ATOMIC_FLAG_INIT;
    /* Many threads may find an error at once. The first thread prints its sentence and ends the
     * process. The other threads wait here. */
    while (atomic_flag_test_and_set(&said))
        pause();
    (void)!write(STDERR_FILENO, text, strlen(text));
    /* exit() would run exit handlers while other threads run, and the handlers may crash in a
     * broken malloc. _exit() runs none. */
    _exit(1);
}
