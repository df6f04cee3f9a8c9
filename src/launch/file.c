#define _GNU_SOURCE 1

#include "launch/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static bool wrong(int error)
{
    errno = error;
    return false;
}

static void close_keeping_errno(int fd)
{
    int kept = errno;
    close(fd);
    errno = kept;
}

bool file_read(int fd, char *text, size_t capacity)
{
    size_t length = 0;
    for (;;) {
        if (length + 1 >= capacity)
            return wrong(EFBIG);
        ssize_t got = pread(fd, text + length, capacity - 1 - length, (off_t)length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return false;
        length += (size_t)got;
        /* If the buffer is larger than the text, the kernel returns the whole text by one read(). A
         * second read(), only to find the end, would double the cost. */
        if (got == 0 || length + 1 < capacity)
            break;
    }
    text[length] = '\0';
    return true;
}

bool file_read_at(int folder, const char *path, char *text, size_t capacity)
{
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool done = file_read(fd, text, capacity);
    close_keeping_errno(fd);
    return done;
}

bool file_write(int fd, const char *text)
{
    size_t length = strlen(text);
    ssize_t written;
    do
        written = pwrite(fd, text, length, 0);
    while (written < 0 && errno == EINTR);
    if (written >= 0 && (size_t)written != length)
        return wrong(EIO);
    return written >= 0;
}

bool file_write_at(int folder, const char *path, const char *text)
{
    int fd = openat(folder, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool done = file_write(fd, text);
    close_keeping_errno(fd);
    return done;
}

/* Reads the digits at `s`. Returns false if there are no digits or if the number does not fit into
 * 64 bits. */
static bool number_at(const char *s, uint64_t *number)
{
    uint64_t value = 0;
    if (*s < '0' || *s > '9')
        return wrong(EBADMSG);
    for (; *s >= '0' && *s <= '9'; s++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *s - '0', &value))
            return wrong(EBADMSG);
    }
    *number = value;
    return true;
}

bool file_read_number(int fd, uint64_t *number)
{
    char text[32];
    return file_read(fd, text, sizeof text) && number_at(text, number);
}

bool file_field(const char *text, const char *key, uint64_t *number)
{
    size_t length = strlen(key);
    for (const char *line = text; line != NULL; line = file_next_line(line)) {
        if (strncmp(line, key, length) == 0) {
            const char *value = line + length;
            return number_at(value + strspn(value, " \t"), number);
        }
    }
    return wrong(EBADMSG);
}

const char *file_next_line(const char *text)
{
    const char *end = strchr(text, '\n');
    return end == NULL || end[1] == '\0' ? NULL : end + 1;
}

bool file_has_word(const char *text, const char *word)
{
    static const char separators[] = " ,\n\t";
    size_t length = strlen(word);
    for (const char *s = text + strspn(text, separators); *s != '\0';) {
        size_t span = strcspn(s, separators);
        if (span == length && memcmp(s, word, length) == 0)
            return true;
        s += span;
        s += strspn(s, separators);
    }
    return false;
}

bool file_lines_open(struct file_lines *lines, int folder, const char *path)
{
    lines->start = lines->end = 0;
    lines->fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    return lines->fd >= 0;
}

/* Appends bytes from the file to the buffer. Returns false at the end of the file. */
static bool lines_fill(struct file_lines *lines)
{
    memmove(lines->buffer, lines->buffer + lines->start, lines->end - lines->start);
    lines->end -= lines->start;
    lines->start = 0;
    ssize_t got;
    do
        got = read(lines->fd, lines->buffer + lines->end, sizeof lines->buffer - 1 - lines->end);
    while (got < 0 && errno == EINTR);
    if (got > 0)
        lines->end += (size_t)got;
    return got > 0;
}

static char *lines_find_end(struct file_lines *lines)
{
    return memchr(lines->buffer + lines->start, '\n', lines->end - lines->start);
}

char *file_lines_next(struct file_lines *lines)
{
    char *line_end = lines_find_end(lines);
    while (line_end == NULL && lines_fill(lines))
        line_end = lines_find_end(lines);
    if (line_end == NULL && lines->start == lines->end)
        return NULL;

    bool cut = line_end == NULL && lines->end == sizeof lines->buffer - 1;
    if (line_end == NULL)
        line_end = lines->buffer + lines->end;
    char *line = lines->buffer + lines->start;
    lines->start = (size_t)(line_end - lines->buffer);
    if (lines->start < lines->end)
        lines->start++;
    *line_end = '\0';
    if (!cut)
        return line;

    /* The line is longer than the buffer. The rest of it is read byte by byte and dropped: a larger
     * read could also take the beginning of the next line. */
    char byte = 0;
    while (byte != '\n' && read(lines->fd, &byte, 1) == 1) {
    }
    return line;
}

void file_lines_close(struct file_lines *lines)
{
    close(lines->fd);
    lines->fd = -1;
}

bool file_each_number(int folder, void (*visit)(void *context, uint64_t number), void *context)
{
    _Alignas(struct dirent64) char buffer[4096];
    if (lseek(folder, 0, SEEK_SET) < 0)
        return false;
    for (;;) {
        ssize_t got = getdents64(folder, buffer, sizeof buffer);
        if (got <= 0)
            return got == 0;
        for (ssize_t at = 0; at < got;) {
            struct dirent64 *entry = (struct dirent64 *)(void *)(buffer + at);
            uint64_t number;
            if (number_at(entry->d_name, &number))
                visit(context, number);
            at += entry->d_reclen;
        }
    }
}
