/* file.h - the small text files through which the kernel speaks: /proc and cgroup folders.
 *
 * Always:
 *
 *     a text that was read is complete and ends with '\0'; one that does not fit was not read
 *     no file is ever created, and every descriptor is close-on-exec
 *     false means that `errno` says why; a text that makes no sense is EBADMSG, one that does not fit EFBIG
 *
 * Lists longer than an OS page, as of mounts, come in several pieces, and need file_lines.
 *
 * `folder` is a folder's descriptor or AT_FDCWD; `path` is relative to it.
 */
#ifndef CAIRN_LAUNCH_FILE_H
#define CAIRN_LAUNCH_FILE_H

#include "base/base.h"

bool file_read_at(int folder, const char *path, char *text, size_t capacity);
bool file_write_at(int folder, const char *path, const char *text);

/* The same on a descriptor that stays open: from the file's beginning, as it is now. */
bool file_read(int fd, char *text, size_t capacity);
bool file_read_number(int fd, uint64_t *number);
bool file_write(int fd, const char *text);

/* The number on the line that begins with `key`; blanks may stand between them. `key` includes its own separator
 * ("anon ", "RssAnon:"), for otherwise "anon" would also find "anon_thp". */
bool file_field(const char *text, const char *key, uint64_t *number);

/* What follows the first line of a text; NULL when nothing does. */
const char *file_next_line(const char *text);

/* Whether `word` stands in a list separated by blanks, commas or line ends. */
bool file_has_word(const char *text, const char *word);

/* Lines of a file of any length through a buffer of one line; the rest of a longer line is dropped. */
struct file_lines {
    int fd;
    size_t start; /* first byte of `buffer` not yet given out */
    size_t end;   /* one past the last byte read */
    char buffer[4096];
};

bool file_lines_open(struct file_lines *lines, int folder, const char *path);
char *file_lines_next(struct file_lines *lines); /* NULL at the end; valid until the next call */
void file_lines_close(struct file_lines *lines);

/* Calls `visit` for every entry of an open folder whose name is a number; needs no malloc, unlike readdir().
 */
bool file_each_number(int folder, void (*visit)(void *context, uint64_t number), void *context);

#endif
