#define _GNU_SOURCE 1

#include "launch/series.h"

#include "base/text.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define LINE_BYTES 96 /* numbers of 20, 20 and 39 digits, and three characters */

/* Drops every second point. The first one stays. */
static void halve(struct series *series)
{
    for (size_t i = 0; 2 * i < series->count; i++)
        series->points[i] = series->points[2 * i];
    series->count /= 2;
    series->stride *= 2;
}

void series_add(struct series *series, uint64_t now_ns, uint64_t bytes, bool is_last)
{
    struct series_point point = {.at_us = now_ns / NS_PER_US, .bytes = bytes};
    if (series->readings == 0) {
        series->stride = 1;
    } else {
        const struct series_point *before = &series->last;
        uint64_t held = is_last ? before->bytes : before->bytes / 2 + bytes / 2;
        series_integral kib = held / 1024;
        point.kib_us = before->kib_us + kib * (point.at_us - before->at_us);
    }
    if (is_last)
        point.bytes = series->last.bytes;
    series->last = point;
    if (series->readings++ % series->stride != 0)
        return;
    /* SERIES_POINTS is even, so this reading is due at the doubled stride, too. */
    if (series->count == SERIES_POINTS)
        halve(series);
    series->points[series->count++] = point;
}

void series_mark(struct series *series)
{
    series->marked = series->last;
    series->is_marked = true;
}

static void add_integral(struct text *text, series_integral value)
{
    if (value >= 10)
        add_integral(text, value / 10);
    text_add_char(text, (char)('0' + value % 10));
}

static bool add_line(int fd, const struct series_point *point)
{
    char data[LINE_BYTES];
    struct text line = text_over(data, sizeof data);
    text_add_unsigned(&line, point->at_us);
    text_add_char(&line, ' ');
    text_add_unsigned(&line, point->bytes);
    text_add_char(&line, ' ');
    add_integral(&line, point->kib_us);
    text_add_char(&line, '\n');
    ssize_t written;
    do
        written = write(fd, line.data, line.length);
    while (written < 0 && errno == EINTR);
    if (written >= 0 && (size_t)written != line.length)
        errno = EIO;
    return written == (ssize_t)line.length;
}

/* Writes the marked point if it lies between these two times. */
static bool add_marked(int fd, const struct series *series, uint64_t after_us, uint64_t before_us)
{
    if (!series->is_marked || series->marked.at_us <= after_us || series->marked.at_us >= before_us)
        return true;
    return add_line(fd, &series->marked);
}

bool series_write(const struct series *series, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool done = true;
    uint64_t written_us = 0;
    for (size_t i = 0; i < series->count && done; i++) {
        done = add_marked(fd, series, written_us, series->points[i].at_us) &&
               add_line(fd, &series->points[i]);
        written_us = series->points[i].at_us;
    }
    done = done && add_marked(fd, series, written_us, series->last.at_us);
    if (done && series->count > 0 && series->last.at_us > written_us)
        done = add_line(fd, &series->last);
    int kept = errno;
    if (close(fd) != 0 && done)
        return false;
    errno = kept;
    return done;
}

void series_check(const struct series *series)
{
    assert(series->count <= SERIES_POINTS);
    assert(!series->is_marked || series->marked.at_us <= series->last.at_us);
    for (size_t i = 1; i < series->count; i++) {
        assert(series->points[i - 1].at_us <= series->points[i].at_us);
        assert(series->points[i - 1].kib_us <= series->points[i].kib_us);
    }
}
