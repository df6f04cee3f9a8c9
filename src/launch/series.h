/* series.h - records the memory of a tree of processes at some moments, and its integral over time.
 * It makes no system calls, except series_write().
 *
 * The readings of peak.h become points. There is room for SERIES_POINTS of them. When it is full,
 * every second point is dropped, and from then on half as many readings become points. The integral
 * of a point contains all readings before it. So the mean between two points stays the same when
 * points between them are dropped. One further point, `marked`, is never dropped. It is the reading
 * of a moment whose memory must be known exactly. Always:
 *
 *     count <= SERIES_POINTS
 *     points[i].at_us <= points[i + 1].at_us and points[i].kib_us <= points[i + 1].kib_us
 *     is_marked implies marked.at_us <= last.at_us
 *
 * Between two readings, memory is taken to change evenly. The last reading is made after the
 * program has ended, so memory is taken to be constant before it.
 */
#ifndef CAIRN_LAUNCH_SERIES_H
#define CAIRN_LAUNCH_SERIES_H

#include "base/base.h"

#include <assert.h>

#define SERIES_POINTS 256
static_assert(SERIES_POINTS % 2 == 0, "half of the points are dropped");

/* 64 bits would hold 1 TiB for no more than 4.8 hours. */
typedef unsigned __int128 series_integral;

struct series_point {
    uint64_t at_us; /* on the clock of clock_now_ns() */
    uint64_t bytes;
    /* The integral since the first reading: KiB times microseconds. */
    series_integral kib_us;
};

struct series {
    struct series_point points[SERIES_POINTS];
    size_t count;
    uint64_t readings;
    /* One reading in this many becomes a point. The number is 0 before the first reading. */
    uint64_t stride;
    struct series_point last;
    struct series_point marked;
    bool is_marked;
};

/* Adds a reading. `is_last` says that the program has ended before it. */
void series_add(struct series *series, uint64_t now_ns, uint64_t bytes, bool is_last);

/* Keeps the last reading as the marked point. There must be a reading. */
void series_mark(struct series *series);

/* Writes the points to `path` in the order of time, a line for each: at_us, bytes and kib_us. The
 * file is emptied first and created for its owner only. Returns false with errno set if that
 * fails. */
bool series_write(const struct series *series, const char *path);

/* Asserts the inequalities at the top of this file. */
void series_check(const struct series *series);

#endif
