/* knob_learner.h - learns, while the program runs, which of the six steps (values) of a setting
 * costs the least. The setting is called a knob.
 *
 * A `struct knob_learner` serves a knob that shows only the cost of the step in use. At the end of
 * each epoch, its owner reports the cost of the epoch and the work that was done in it.
 * knob_learner_step() is the step to use next. The cost should be computed from counts, such as
 * page faults or byte-seconds, because times that a clock measures are too noisy. Epochs should
 * hold similar amounts of work. The owner should not report a program's first epochs, because they
 * differ from all later ones. One thread at a time owns a learner. Any thread may read its step.
 * Between calls, always:
 *
 *     least <= step <= most
 *     weight[i]    epochs seen at step i, each discounted by 1 % per later epoch; 0: unknown
 *     sum(weight)  <= 100
 *     changes[]    each change is by one step, begins where the one before it ended, and the last
 *                  ends at `step`
 *
 * The method is UCB1 with a discount (Kocsis and Szepesvari 2006; Garivier and Moulines 2011). For
 * every step it computes the lowest cost that the observations allow. The less is known of a step,
 * the lower this bound is. The learner moves to the step with the lowest bound. It differs from
 * plain UCB1 in these points:
 *
 *   - The bonus, by which the bound lies below the mean cost of a step, is in units of the noise.
 *     The noise is the average distance of an epoch's cost from the mean of its step, and at least
 *     a 64th of that mean. If no step costs anything, no other step is tried. A cost counts as at
 *     most 4 noises from the mean, so costs that come in rare bursts are underrated.
 *   - Steps lie in a row, and their costs mostly form a valley. So of the steps seen, only the
 *     neighbours of the best one are tried again (Combes and Proutiere 2014). An unseen step counts
 *     as if it had been seen for a quarter of an epoch, at the mean cost of the nearest seen step
 *     between it and the step in use.
 *   - A change is by one step, towards the step that two epochs in a row chose. The new step is
 *     then kept for at least 3 epochs, and for 20 epochs once the learner has learnt for 100.
 *   - If the step in use costs more or less than before for long enough (Page's CUSUM test), a new
 *     phase has begun. The learner then forgets everything except the step. If only the costs of
 *     other steps have changed, the discount makes it try them again.
 *
 * The constants in knob_learner.c were chosen among 1,300 sets in the simulator of
 * tests/unit/policy_steps.c, with a noise of a fifth of the cost. There the first 200 epochs cost 0
 * to 9 % more than the best step, and all later epochs 0 to 4 % more. In seven million epochs,
 * noise was never taken for a new phase. If 0.8 of each epoch's deviation carries over to the next
 * epoch, noise is taken for a new phase once in 400 epochs.
 */
#ifndef CAIRN_POLICY_KNOB_LEARNER_H
#define CAIRN_POLICY_KNOB_LEARNER_H

#include "base/base.h"

#include <stdatomic.h>

enum {
    KNOB_STEPS = 6,
    KNOB_TRACE = 16, /* number of changes that are remembered */
};

struct knob_learner_change {
    uint64_t epoch; /* number of the epoch that ended with the change, from 1 */
    uint32_t from;
    uint32_t to;
    double cost_ns;     /* estimated cost per unit of work at `from` */
    double expected_ns; /* estimated cost per unit of work at `to`; 0: unknown */
};

/* The knowledge that was gained in the current phase. */
struct knob_learner_known {
    uint64_t epochs;
    double weight[KNOB_STEPS]; /* discounted number of epochs at each step */
    double sum_ns[KNOB_STEPS]; /* discounted sum of the costs of these epochs */
    double noise_weight;
    double noise_sum_ns;
    double above_ns; /* CUSUM of the costs above the mean of the step in use */
    double below_ns; /* CUSUM of the costs below the mean of the step in use */
    unsigned wanted; /* step that was chosen last; need not be a neighbour */
    unsigned rest;   /* epochs until a change is allowed */
};

struct knob_learner {
    _Atomic unsigned step;
    unsigned least;
    unsigned most;
    bool frozen;
    uint64_t epochs; /* all epochs, also those without learning */
    uint64_t change_count;
    struct knob_learner_known known;
    struct knob_learner_change changes[KNOB_TRACE]; /* change n at n % KNOB_TRACE */
};

/* Begins at `step`. Only steps from `least` to `most` are used. */
void knob_learner_init(struct knob_learner *learner, unsigned step, unsigned least, unsigned most);

static inline unsigned knob_learner_step(const struct knob_learner *learner)
{
    /* Relaxed: a knob publishes no other data. */
    return atomic_load_explicit(&learner->step, memory_order_relaxed);
}

/* Learns from an epoch that has ended. Returns true if the step has changed. Ignores an epoch
 * without work, or with an impossible cost. */
bool knob_learner_evolve(struct knob_learner *learner, double cost_ns, uint64_t work);

/* Keeps the step from now on. Nothing more is learnt. */
void knob_learner_freeze(struct knob_learner *learner);

/* Writes the last changes, the oldest first. Returns the number of changes that it wrote. */
unsigned knob_learner_trace(const struct knob_learner *learner,
                            struct knob_learner_change changes[KNOB_TRACE]);

/* Chooses the step of a knob that shows the cost of every step. Returns the cheapest step if it
 * saves more than the fraction `margin` of the cost at `now`. Otherwise returns `now`. A cost that
 * is infinite or not a number is never chosen. */
unsigned knob_learner_best(const double cost[KNOB_STEPS], unsigned now, double margin);

/* Returns true if the invariants at the top of this file hold. */
bool knob_learner_is_sound(const struct knob_learner *learner);

#endif
