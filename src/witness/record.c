#define _GNU_SOURCE 1
#include "witness/record.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/auxv.h>

#include "witness/environment.h"
#include "witness/kernel.h"

/* A copy of the path of the witness file. Some programs (nginx, postgres) overwrite their initial
 * environment, where the path comes from, to show a title in the list of processes. */
static char file[PATH_MAX];
static bool file_known;

const char *record_file(void)
{
    if (!file_known) {
        const char *path = environment_value(environ, "CAIRN_WITNESS");
        if (path != NULL && path[0] == '/' && strlen(path) < sizeof file &&
            getauxval(AT_SECURE) == 0)
            memcpy(file, path, strlen(path) + 1);
        file_known = true;
    }
    return file[0] != '\0' ? file : NULL;
}

void record_begin(struct text *line, const char *event, pid_t pid)
{
    text_add_char(line, '{');
    text_add_json_unsigned(line, "v", 1);
    text_add_json_text(line, "event", event);
    text_add_json_unsigned(line, "pid", (uint64_t)pid);
}

/* Returns the number of bytes that text_add_json_string() writes for one byte. */
static size_t json_bytes(char c)
{
    if (c == '"' || c == '\\')
        return 2;
    return c >= 0x20 && c < 0x7f ? 1 : 6;
}

void record_add(struct text *line, const char *key, const char *value, size_t limit)
{
    char kept[RECORD_PATH_BYTES + RECORD_CUT_BYTES + 1];
    size_t count = 0;
    if (limit > RECORD_PATH_BYTES)
        limit = RECORD_PATH_BYTES;
    for (size_t bytes = 0; value[count] != '\0'; count++) {
        bytes += json_bytes(value[count]);
        if (bytes > limit)
            break;
    }
    memcpy(kept, value, count);
    if (value[count] == '\0')
        kept[count] = '\0';
    else
        memcpy(kept + count, "[cut]", RECORD_CUT_BYTES + 1);
    text_add_json_text(line, key, kept);
}

/* Returns whether the file is well below the limit on file sizes. A write beyond the limit would
 * kill the program with SIGXFSZ. The margin is for other processes that append at the same time. */
static bool has_room(const struct stat *status)
{
    enum { MARGIN_BYTES = 64 << 10 };
    uint64_t limit = kernel_file_size_limit_bytes();
    return limit >= MARGIN_BYTES && (uint64_t)status->st_size <= limit - MARGIN_BYTES;
}

int record_end(struct text *line)
{
    text_add(line, "}\n");
    if (line->truncated || record_file() == NULL)
        return EINVAL;
    int fd = kernel_open(AT_FDCWD, record_file(), O_WRONLY | O_APPEND | O_NOFOLLOW);
    if (fd < 0)
        return errno;
    struct stat status;
    int error = 0;
    if (!kernel_stat_open(fd, &status) || !S_ISREG(status.st_mode))
        error = EINVAL;
    else if (!has_room(&status))
        error = EFBIG;
    else if (kernel_write(fd, line->data, line->length) < 0)
        error = errno;
    kernel_close(fd);
    return error;
}
