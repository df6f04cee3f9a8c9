/* clock.h - reads clocks as nanoseconds in a uint64_t.
 *
 * clock_now_ns() never goes back, and is the same clock in every process of the machine. A time
 * stamp of a child can therefore be compared with one of its parent. No function here can fail on
 * Linux.
 */
#ifndef CAIRN_CLOCK_H
#define CAIRN_CLOCK_H

#include "base/base.h"

#include <time.h>

static inline uint64_t clock_read_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_now_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC);
}

/* Returns the CPU time of the calling thread, user and system time together. */
static inline uint64_t clock_thread_cpu_ns(void)
{
    return clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

#endif
