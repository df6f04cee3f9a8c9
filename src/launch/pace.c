#define _GNU_SOURCE 1

#include "launch/pace.h"

static uint64_t max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void pace_begin(struct pace *pace, uint64_t now_ns)
{
    pace->begin_ns = now_ns;
    pace->due_ns = now_ns + pace->min_ns;
    pace->cost_ns = 0;
    pace->cpu_ns = 0;
}

void pace_spend(struct pace *pace, uint64_t now_ns, uint64_t cpu_ns)
{
    pace->cpu_ns += cpu_ns;
    /* The new cost and the old mean count equally, so that one repetition that an interrupt made
     * slow does not delay the following ones for long. */
    pace->cost_ns = pace->cost_ns == 0 ? cpu_ns : (pace->cost_ns + cpu_ns) / 2;
    uint64_t spacing_ns = pace->cost_ns * pace->divisor;
    if (pace->cpu_ns < PACE_EARLY_CPU_NS)
        spacing_ns = min(spacing_ns, now_ns - pace->begin_ns);
    pace->due_ns = now_ns + min(max(spacing_ns, pace->min_ns), pace->max_ns);
}
