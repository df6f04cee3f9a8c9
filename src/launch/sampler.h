/* sampler.h - reads the memory of the tree repeatedly, and decides when the next reading is due.
 *
 * The launcher's main loop waits until sampler_due_ns() and then calls sampler_take(). Always:
 *
 *     1 ms <= time between two readings <= 100 ms, except before a reading of sampler_mark() and
 *     before the last reading
 *     after the first few readings, the CPU time of all readings is below 0.4 % of the elapsed
 *     time: 0.2 % for page tables (memory.h) and 0.2 % for all other work; very slow readings
 *     exceed this limit, because one is made at least every 100 ms
 *     if `divides` is true, the memory is also divided among the processes, which takes another
 *     0.2 % at most
 */
#ifndef CAIRN_LAUNCH_SAMPLER_H
#define CAIRN_LAUNCH_SAMPLER_H

#include "base/base.h"
#include "launch/division.h"
#include "launch/memory.h"
#include "launch/pace.h"
#include "launch/peak.h"
#include "launch/series.h"

struct sampler {
    struct memory memory;
    struct pace pace;
    struct peak peak;
    struct series series;
    bool has_ended; /* set by the caller before the last reading */
    bool divides;   /* set by the caller before sampler_begin() */
    struct pace divide_pace;
    struct division division;
};

/* Starts sampling. Called right before the program starts. `memory` must be open. */
void sampler_begin(struct sampler *sampler);

/* Returns when the next reading is due, on the clock of clock_now_ns(). Returns UINT64_MAX if
 * memory is not measured. */
uint64_t sampler_due_ns(const struct sampler *sampler);

/* Makes a reading now. The last reading must be made right after the program's end, because it
 * shows the highest charge since the reading before. */
void sampler_take(struct sampler *sampler);

/* Makes a reading now, which `series` keeps as its marked point. */
void sampler_mark(struct sampler *sampler);

/* Completes `peak` and closes `memory`. */
void sampler_end(struct sampler *sampler);

/* Returns the CPU time of all readings. */
uint64_t sampler_cpu_ns(const struct sampler *sampler);

#endif
