/* policy.h - which of six steps of a knob costs the least, learnt while the program runs.
 *
 * For a knob of which only the step in use shows its cost, there is a `struct policy`. At the end of each epoch its owner says
 * what the epoch cost, as counted (so many faults, so many byte-seconds; a clock is too noisy), and how much work was done
 * for it; policy_step() is what to use next. Epochs should hold like amounts of work, and the first ones of a program, which
 * are like no others, be left out. One thread at a time owns a policy; any may ask for its step. Between calls, always:
 *
 *     least <= step <= most
 *     what was seen of a step weighs 1 % less with each epoch, so 100 epochs at most in all; 0: nothing is known of it
 *     of the last changes each is by one step, begins where the one before it ended, and the last ends at `step`
 *
 * This is UCB1 with a discount (Kocsis and Szepesvari 2006; Garivier and Moulines 2011): every step is hoped to be as cheap
 * as what is known of it allows, which is the cheaper the less is known, and the cheapest is gone to. What is particular:
 *
 *     - The bonus is in units of the noise: by how much an epoch is off from the mean of its step, on average, a 64th of that
 *       mean at least. So where nothing costs anything nothing is tried. No epoch is taken for more than 4 noises off: what
 *       comes in rare bursts is underrated.
 *     - Steps lie in a row, and their costs mostly in a valley. So of those that were seen only the neighbours of the best are
 *       tried again (Combes and Proutiere 2014), and what was not is taken for its neighbour, seen for a quarter of an epoch.
 *     - The way is one step a change, to where two epochs in a row said. Then that step is kept for 3 epochs at least, for 20
 *       once 100 have been learnt from.
 *     - Where the step in use costs other than it did, for long enough (Page's CUSUM test), a new phase has begun: all is
 *       forgotten but the step. Where only others changed, the discount sees to it that they are tried.
 *
 * The constants in policy.c were chosen among 1,300 sets in the simulator of tests/unit/policy_steps.c: noise of a fifth.
 * There the first 200 epochs cost 0 to 9 % more than the best step does, all later ones 0 to 4 %, and no noise was taken for a
 * phase in seven million epochs. Where each epoch is 0.8 as far off as the one before it, that happens once in 400.
 */
#ifndef CAIRN_POLICY_POLICY_H
#define CAIRN_POLICY_POLICY_H

#include "base/base.h"

#include <stdatomic.h>

enum {
    POLICY_STEPS = 6,
    POLICY_TRACE = 16, /* changes that are remembered */
};

struct policy_change {
    uint64_t epoch; /* at the end of which; the first is 1 */
    uint32_t from;
    uint32_t to;
    double cost_ns;     /* of a unit of work, by what was known then: at `from` */
    double expected_ns; /* and at `to`; 0: it was not known */
};

/* What was learnt in this phase. */
struct policy_known {
    uint64_t epochs;
    double weight[POLICY_STEPS]; /* of how many epochs at that step */
    double sum_ns[POLICY_STEPS]; /* their costs; both are discounted */
    double noise_weight;
    double noise_sum_ns;
    double above_ns; /* how much more than before the step in use costs, beyond the noise */
    double below_ns; /* and how much less */
    unsigned wanted; /* what the last epoch said; may be several steps away */
    unsigned rest;   /* epochs before the next change */
};

struct policy {
    _Atomic unsigned step;
    unsigned least;
    unsigned most;
    bool frozen;
    uint64_t epochs; /* of any kind */
    uint64_t change_count;
    struct policy_known known;
    struct policy_change changes[POLICY_TRACE]; /* change n at n % POLICY_TRACE */
};

/* Steps from `least` to `most` are used, no others. */
void policy_init(struct policy *policy, unsigned step, unsigned least, unsigned most);

static inline unsigned policy_step(const struct policy *policy)
{
    return atomic_load_explicit(&policy->step,
                                memory_order_relaxed); /* a knob alone publishes nothing */
}

/* An epoch is over; true: the step has changed. One without work, or with a cost that no epoch can have, teaches nothing. */
bool policy_evolve(struct policy *policy, double cost_ns, uint64_t work);

/* From now on the step stays, and nothing is learnt. */
void policy_freeze(struct policy *policy);

/* Writes the last changes, the oldest first; returns how many. */
unsigned policy_trace(const struct policy *policy, struct policy_change changes[POLICY_TRACE]);

/* For a knob of which the cost of every step is known: the cheapest, but `now` unless that is cheaper by more than `margin`,
 * a part of what `now` costs. What is infinite, or not a number, is not chosen. */
unsigned policy_best(const double cost[POLICY_STEPS], unsigned now, double margin);

/* Whether the contract holds. */
bool policy_is_sound(const struct policy *policy);

#endif
