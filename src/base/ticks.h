/* ticks.h - the quickest clock there is: the processor's time-stamp counter, elsewhere the system's in ns.
 *
 * Constant in rate on any processor that runs Linux today; how many are a nanosecond is for the caller to find out, by
 * reading clock.h beside it. ticks_before() and ticks_after() keep what is timed between them.
 */
#ifndef CAIRN_TICKS_H
#define CAIRN_TICKS_H

#include "base/clock.h"

#if defined(__x86_64__)

static inline uint64_t ticks_now(void)
{
    return __builtin_ia32_rdtsc();
}

/* RDTSC does not wait for other instructions (Intel's manual). An LFENCE before it waits for all earlier instructions. An LFENCE
 * behind it keeps later instructions from starting before it. */
static inline uint64_t ticks_before(void)
{
    __builtin_ia32_lfence();
    uint64_t now = __builtin_ia32_rdtsc();
    __builtin_ia32_lfence();
    return now;
}

static inline uint64_t ticks_after(void)
{
    __builtin_ia32_lfence();
    return __builtin_ia32_rdtsc();
}

#else

static inline uint64_t ticks_now(void)
{
    return clock_now_ns();
}

static inline uint64_t ticks_before(void)
{
    return clock_now_ns();
}

static inline uint64_t ticks_after(void)
{
    return clock_now_ns();
}

#endif

#endif
