/* file.h - reads and writes the small text files of the kernel in /proc and in cgroup folders.
 *
 * Always:
 *
 *     a text that was read is complete and ends with '\0'
 *     no function creates a file, and every descriptor is close-on-exec
 *     a function that returns false has set errno; EBADMSG means that the text could not be parsed,
 *     EFBIG that it did not fit into the buffer
 *
 * The kernel returns lists that are longer than an OS page, such as the list of mounts, in several
 * pieces. Use file_lines for them.
 *
 * `folder` is the descriptor of a folder, or AT_FDCWD. `path` is relative to it.
 */
#ifndef CAIRN_LAUNCH_FILE_H
#define CAIRN_LAUNCH_FILE_H

#include "base/base.h"

/* file_read_at() reads a whole file into `text`. file_write_at() writes `text` to the beginning of
 * a file by one write(). */
bool file_read_at(int folder, const char *path, char *text, size_t capacity);
bool file_write_at(int folder, const char *path, const char *text);

/* file_read() and file_write() are like file_read_at() and file_write_at(), but use an open
 * descriptor. file_read_number() reads a decimal number from the descriptor. Each call starts at
 * the beginning of the file, so that a repeated read returns the present contents. */
bool file_read(int fd, char *text, size_t capacity);
bool file_read_number(int fd, uint64_t *number);
bool file_write(int fd, const char *text);

/* Finds the first line that begins with `key` and reads the number after the key. Blanks may stand
 * between the key and the number. `key` must include its separator ("anon ", "RssAnon:"), because
 * "anon" would also match "anon_thp". */
bool file_field(const char *text, const char *key, uint64_t *number);

/* Returns the text after the first line, or NULL if no text follows. */
const char *file_next_line(const char *text);

/* Returns whether `word` is in a list separated by blanks, commas or line ends. */
bool file_has_word(const char *text, const char *word);

/* Reads a file of any length line by line. A line that does not fit into the buffer is cut. */
struct file_lines {
    int fd;
    size_t start; /* first byte of `buffer` not yet returned */
    size_t end;   /* one past the last byte read */
    char buffer[4096];
};

/* Opens the file. Returns false with errno set if that fails. */
bool file_lines_open(struct file_lines *lines, int folder, const char *path);
/* Returns the next line without its end, or NULL at the end of the file. The line is valid until
 * the next call. */
char *file_lines_next(struct file_lines *lines);
void file_lines_close(struct file_lines *lines);

/* Calls `visit` for every entry of an open folder whose name begins with a digit. Unlike readdir(),
 * this function needs no malloc. Returns false with errno set if the folder cannot be read. */
bool file_each_number(int folder, void (*visit)(void *context, uint64_t number), void *context);

#endif
