/* witness.c - records at the start of a program which object (the program or a library) owns
 * malloc, and which knobs are set. A knob is an environment variable that configures an allocator.
 * This file also begins the records of how the processes of the program end (endings.h).
 *
 * The library is preloaded before the allocator under test, in every process of a measured program.
 * It is also preloaded in the runs of the baseline, so that it costs the same time in all
 * measurements. The library neither defines nor calls an allocator function.
 */
#define _GNU_SOURCE 1
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "witness/endings.h"
#include "witness/environment.h"
#include "witness/exec.h"
#include "witness/kernel.h"
#include "witness/owner.h"
#include "witness/record.h"
#include "witness/sandbox.h"

enum {
    START_BYTES = 8192,  /* buffer for the record; fits on a thread's small stack */
    BUILD_ID_BYTES = 32, /* GNU ld writes 20 bytes, lld 8 or 20; SHA-256 has 32 */
    KNOB_NAME_MAX = 60,
    KNOB_VALUE_BYTES = 400, /* enough for two long paths in LD_PRELOAD */
    /* Bytes of one knob: escaped name and value, quotes, comma and "[cut]". */
    KNOB_BYTES = 6 * KNOB_NAME_MAX + KNOB_VALUE_BYTES + 20,
    TAIL_BYTES = 30, /* },"knobs_cut":true}\n */
};

/* A start record has at most five paths: of the program and of the owners of four functions. If all
 * are as long as possible, there is still room for some knobs. */
static_assert(START_BYTES > 2 * RECORD_HEAD_BYTES +
                                5 * (RECORD_PATH_BYTES + RECORD_CUT_BYTES + 20) +
                                2 * BUILD_ID_BYTES + 3 * KNOB_BYTES + TAIL_BYTES,
              "a start record fits");

static void add_hex(struct text *line, const unsigned char *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";
    text_add_char(line, '"');
    for (size_t i = 0; i < count && i < BUILD_ID_BYTES; i++) {
        text_add_char(line, digits[bytes[i] >> 4]);
        text_add_char(line, digits[bytes[i] & 15]);
    }
    text_add_char(line, '"');
}

/* Returns the path of an owner. The loader's name for the program itself is ""; its path is
 * `exe`. */
static const char *path_of(const struct owner *owner, const char *exe)
{
    if (owner->path == NULL)
        return "";
    return owner->path[0] != '\0' ? owner->path : exe;
}

static void add_owners(struct text *line, const char *exe)
{
    static const char *const others[] = {"free", "calloc", "realloc"};
    struct owner owner = owner_of_function("malloc");
    text_add_json_key(line, "malloc");
    text_add_char(line, '{');
    record_add(line, "path", path_of(&owner, exe), RECORD_PATH_BYTES);
    if (owner.build_id != NULL) {
        text_add_json_key(line, "build_id");
        add_hex(line, owner.build_id, owner.build_id_bytes);
    } else {
        text_add_json_null(line, "build_id");
    }
    text_add_char(line, '}');

    bool is_split = false;
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        struct owner other = owner_of_function(others[i]);
        if (other.path == owner.path) /* equal pointers: the loader has one string per object */
            continue;
        if (!is_split) {
            text_add_json_key(line, "split");
            text_add_char(line, '{');
        }
        is_split = true;
        record_add(line, others[i], path_of(&other, exe), RECORD_PATH_BYTES);
    }
    if (is_split)
        text_add_char(line, '}');
}

/* Returns whether a variable configures an allocator. Most allocators have variables with "MALLOC"
 * in their names, for example JEMALLOC, MIMALLOC and TCMALLOC. `named` is a list of further names
 * from CAIRN_WITNESS_KNOBS, separated by colons, or NULL. */
static bool is_knob(const char *name, size_t length, const char *named)
{
    static const char *const parts[] = {"MALLOC", "TUNABLES", "SCUDO", "HOARD"};
    static const char *const whole[] = {"LD_PRELOAD", "LD_LIBRARY_PATH"};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (memmem(name, length, parts[i], strlen(parts[i])) != NULL)
            return true;
    for (size_t i = 0; i < COUNT_OF(whole); i++)
        if (length == strlen(whole[i]) && memcmp(name, whole[i], length) == 0)
            return true;
    if (length >= 6 && memcmp(name, "CAIRN_", 6) == 0)
        return true;
    return named != NULL && environment_list_has(named, ":", name, length);
}

static void add_knobs(struct text *line)
{
    const char *named = environment_value(environ, "CAIRN_WITNESS_KNOBS");
    bool is_cut = false;
    text_add_json_key(line, "knobs");
    text_add_char(line, '{');
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++) {
        const char *equals = strchr(*variable, '=');
        if (equals == NULL || !is_knob(*variable, (size_t)(equals - *variable), named))
            continue;
        char name[KNOB_NAME_MAX + 1];
        size_t length = (size_t)(equals - *variable);
        if (length > KNOB_NAME_MAX || line->length + KNOB_BYTES + TAIL_BYTES >= line->capacity) {
            is_cut = true;
            continue;
        }
        memcpy(name, *variable, length);
        name[length] = '\0';
        record_add(line, name, equals + 1, KNOB_VALUE_BYTES);
    }
    text_add_char(line, '}');
    if (is_cut)
        text_add_json_bool(line, "knobs_cut", true);
}

static void write_start(const char *exe)
{
    char buffer[START_BYTES];
    struct text line = text_over(buffer, sizeof buffer);
    record_begin(&line, "start", kernel_process());
    text_add_json_unsigned(&line, "ppid", (uint64_t)kernel_parent());
    record_add(&line, "exe", exe, RECORD_PATH_BYTES);
    add_owners(&line, exe);
    add_knobs(&line);
    (void)record_end(&line);
}

__attribute__((constructor)) static void witness_start(void)
{
    int error = errno;
    exec_prepare();
    endings_prepare();
    sandbox_prepare();
    if (record_file() != NULL) {
        /* One byte longer than the longest path that fits into a record, so that record_add()
         * notices a longer path and marks it as cut. */
        char exe[RECORD_PATH_BYTES + 2];
        kernel_read_link("/proc/self/exe", exe, sizeof exe);
        write_start(exe);
        endings_begin(exe);
    }
    errno = error;
}
