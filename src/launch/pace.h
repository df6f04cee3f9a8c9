/* pace.h - decides how often a costly operation may be repeated.
 *
 * After each pace_spend(), always:
 *
 *     now + min_ns <= due_ns <= now + max_ns
 *     due_ns == now + divisor * cost_ns, within these bounds
 *
 * In the long run the operation thus uses 1 / `divisor` of the time of one CPU. Until
 * PACE_EARLY_CPU_NS of CPU time were spent, another limit applies:
 *
 *     due_ns <= now + max(now - begin_ns, min_ns)
 *
 * The first repetitions are then at 1, 2, 4, 8 … ms, so that a short program is seen several times.
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
    uint64_t cost_ns; /* running mean of the operation's CPU time */
    uint64_t cpu_ns;  /* CPU time of the operation since pace_begin() */
};

/* Starts the pace. The operation is due for the first time after min_ns. */
void pace_begin(struct pace *pace, uint64_t now_ns);

/* Records that the operation was done and used `cpu_ns` of CPU time. Sets `due_ns`. */
void pace_spend(struct pace *pace, uint64_t now_ns, uint64_t cpu_ns);

#endif
