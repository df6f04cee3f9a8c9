/* ticks.h - the fastest clock: the time-stamp counter on x86-64, elsewhere the system's clock in
 * ns.
 *
 * The counter has a constant rate on every processor that runs Linux today. A caller that needs the
 * rate reads both this counter and the clock of clock.h at two moments. ticks_before() and
 * ticks_after() are called before and after timed code. They keep the processor from executing a
 * part of that code before the first reading or after the second.
 */
#ifndef CAIRN_TICKS_H
#define CAIRN_TICKS_H

#include "base/clock.h"

#if defined(__x86_64__)

static inline uint64_t ticks_now(void)
{
    return __builtin_ia32_rdtsc();
}

/* RDTSC does not wait for other instructions (Intel's manual). An LFENCE before RDTSC waits for all
 * earlier instructions. An LFENCE behind RDTSC keeps later instructions from starting before
 * RDTSC. */
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
