/* sampler.h - reads memory again and again, as often as it may: it decides when, its caller waits until then.
 *
 * Always:
 *
 *     1 ms <= time between two readings <= 100 ms
 *     beyond the first few readings their CPU time stays below 0.4 % of the time that passes: half of it for
 * reading, half for looking at page tables (memory.h); only the bound of 100 ms wins over this
 */
#ifndef CAIRN_LAUNCH_SAMPLER_H
#define CAIRN_LAUNCH_SAMPLER_H

#include "base/base.h"
#include "launch/memory.h"
#include "launch/pace.h"
#include "launch/peak.h"

struct sampler {
    struct memory memory;
    struct pace pace;
    struct peak peak;
};

/* Over a memory that was opened; the program is about to start. */
void sampler_begin(struct sampler *sampler);

/* When to read next, on clock_now_ns(); never without a method. */
uint64_t sampler_due_ns(const struct sampler *sampler);

/* Reads now; for the last time right after the program's end, which tells what happened until then. */
void sampler_take(struct sampler *sampler);
void sampler_end(struct sampler *sampler);

/* CPU time of all readings. */
uint64_t sampler_cpu_ns(const struct sampler *sampler);

#endif
