/* pace.h - how often something costly may be repeated.
 *
 * After each repetition, always:
 *
 *     now + min_ns <= due_ns <= now + max_ns
 *     due_ns == now + divisor * cost, within these bounds: in the long run it takes one part in `divisor` of
 * a CPU
 *
 * but until PACE_EARLY_CPU_NS were spent also due_ns <= now + (time since the beginning), or min_ns: at 1, 2,
 * 4, 8 … ms, so that a short program is seen several times.
 */
#ifndef CAIRN_LAUNCH_PACE_H
#define CAIRN_LAUNCH_PACE_H

#include "base/base.h"

#define PACE_EARLY_CPU_NS (500 * NS_PER_US)

struct pace {
    uint64_t min_ns;
    uint64_t max_ns;
    uint64_t divisor;
    uint64_t begin_ns;
    uint64_t due_ns;
    uint64_t cost_ns; /* of a recent repetition, in CPU time */
    uint64_t cpu_ns;  /* of all */
};

/* The first is due after min_ns. */
void pace_begin(struct pace *pace, uint64_t now_ns);

/* It was done, and took so much. */
void pace_spend(struct pace *pace, uint64_t now_ns, uint64_t cpu_ns);

#endif
