#include "policy/knob_learner.h"

/* These constants are numbers of epochs. */
enum {
    REST_FIRST = 4,
    REST_LEAST = 3,
    REST_MOST = 20,
    REST_PART = 5,    /* rest after a change: epochs of the phase / REST_PART */
    SURE_WEIGHT = 24, /* least weight of the step in use to see a new phase */
};
static const double DISCOUNT = 0.99;
static const double UNSEEN_WEIGHT = 0.25;

/* The weight of an unused step falls to this value within 1,400 to 1,800 epochs. The step then
 * counts as unseen. */
static const double FORGOTTEN_WEIGHT = 1e-6;

/* The next four constants are in units of the noise. */
static const double BONUS = 0.5;
static const double MARGIN = 0.5; /* another step must seem cheaper by this much */
static const double OUTLIER = 4;  /* a cost further from the mean counts as this far */
static const double PHASE = 12;   /* a CUSUM above this means a new phase */

/* The next two constants are fractions of a cost. */
static const double NOISE_FIRST = 0.25;

/* With a noise of 0 there would be no bonus, and no step would be tried again. */
static const double NOISE_LEAST = 1.0 / 64;

static const double COST_NS_MAX = 1e15; /* eleven days: no epoch is that long */

/* --- arithmetic without libm ------------------------------------------------------------------ */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Returns the square root of x > 0, by Newton's method. The iterates fall until they reach the
 * root. */
static double square_root(double x)
{
    double root = larger(x, 1);
    for (double next = (root + x / root) / 2; next < root; next = (root + x / root) / 2)
        root = next;
    return root;
}

/* Returns the natural logarithm of x >= 1. Interpolates linearly between powers of two, so that the
 * result is up to 0.06 too small. */
static double logarithm(double x)
{
    int doublings = 63 - __builtin_clzll((uint64_t)x);
    return 0.6931 * (doublings - 1 + x / (double)(UINT64_C(1) << doublings));
}

/* --- what is known ---------------------------------------------------------------------------- */

static double mean_ns(const struct knob_learner_known *known, unsigned step)
{
    return known->weight[step] > 0 ? known->sum_ns[step] / known->weight[step] : 0;
}

/* Returns the noise, which is at least a 64th of `cost_ns`. */
static double noise_ns(const struct knob_learner_known *known, double cost_ns)
{
    double noise = known->noise_weight > 0 ? known->noise_sum_ns / known->noise_weight : 0;
    return larger(noise, NOISE_LEAST * cost_ns);
}

/* Updates the noise. Returns the epoch's cost, limited to OUTLIER noises from the mean. */
static double learn_noise(struct knob_learner_known *known, unsigned step, double cost_ns)
{
    double mean = mean_ns(known, step);
    double noise = noise_ns(known, mean > 0 ? mean : cost_ns);
    double off = larger(cost_ns - mean, -OUTLIER * noise);
    if (off > OUTLIER * noise)
        off = OUTLIER * noise;
    known->above_ns = larger(known->above_ns + off - noise, 0);
    known->below_ns = larger(known->below_ns - off - noise, 0);
    known->noise_sum_ns = known->noise_sum_ns * DISCOUNT + larger(off, -off);
    known->noise_weight = known->noise_weight * DISCOUNT + 1;
    return mean + off;
}

static void learn(struct knob_learner_known *known, unsigned step, double cost_ns)
{
    if (known->epochs++ == 0) {
        known->noise_sum_ns = NOISE_FIRST * cost_ns;
        known->noise_weight = 1;
    } else if (known->weight[step] > 0) {
        cost_ns = learn_noise(known, step, cost_ns);
    }
    for (unsigned i = 0; i < KNOB_STEPS; i++) {
        double kept = known->weight[i] > FORGOTTEN_WEIGHT ? DISCOUNT : 0;
        known->weight[i] *= kept;
        known->sum_ns[i] *= kept;
    }
    known->weight[step] += 1;
    known->sum_ns[step] += cost_ns;
}

static void forget(struct knob_learner_known *known, unsigned step)
{
    *known = (struct knob_learner_known){.wanted = step, .rest = REST_FIRST};
}

static bool is_new_phase(const struct knob_learner_known *known, unsigned step)
{
    double noise = noise_ns(known, mean_ns(known, step));
    return known->weight[step] >= SURE_WEIGHT &&
           larger(known->above_ns, known->below_ns) > PHASE * noise;
}

/* --- choosing a step -------------------------------------------------------------------------- */

/* Returns the lowest cost of a step that the observations allow. An unseen step gets the mean cost
 * of the nearest seen step on the way to `now`, the step in use. */
static double hoped_ns(const struct knob_learner_known *known, unsigned step, unsigned now)
{
    double weight = 1; /* keeps the logarithm above 0 */
    for (unsigned i = 0; i < KNOB_STEPS; i++)
        weight += known->weight[i];
    unsigned like = step;
    while (known->weight[like] <= 0)
        like = like < now ? like + 1 : like - 1;
    double seen = like == step ? known->weight[step] : UNSEEN_WEIGHT;
    double noise = noise_ns(known, mean_ns(known, now));
    return mean_ns(known, like) - BONUS * noise * square_root(logarithm(weight) / seen);
}

static unsigned choose(const struct knob_learner *learner, unsigned now)
{
    const struct knob_learner_known *known = &learner->known;
    unsigned best = now;
    for (unsigned i = learner->least; i <= learner->most; i++)
        if (known->weight[i] > 0 && mean_ns(known, i) < mean_ns(known, best))
            best = i;
    unsigned chosen = now;
    double least = hoped_ns(known, now, now) - MARGIN * noise_ns(known, mean_ns(known, now));
    for (unsigned i = learner->least; i <= learner->most; i++) {
        bool is_far = i > best + 1 || best > i + 1;
        double hoped = hoped_ns(known, i, now);
        if (hoped < least && !(is_far && known->weight[i] > 0)) {
            chosen = i;
            least = hoped;
        }
    }
    return chosen;
}

static void change(struct knob_learner *learner, unsigned from, unsigned to)
{
    struct knob_learner_known *known = &learner->known;
    learner->changes[learner->change_count++ % KNOB_TRACE] = (struct knob_learner_change){
        learner->epochs, from, to, mean_ns(known, from), mean_ns(known, to)};
    uint64_t rest = known->epochs / REST_PART;
    known->rest = rest < REST_LEAST ? REST_LEAST : rest > REST_MOST ? REST_MOST : (unsigned)rest;
    known->above_ns = known->below_ns = 0;
    atomic_store_explicit(&learner->step, to, memory_order_relaxed);
}

/* --- public functions ------------------------------------------------------------------------- */

void knob_learner_init(struct knob_learner *learner, unsigned step, unsigned least, unsigned most)
{
    *learner = (struct knob_learner){.step = step, .least = least, .most = most};
    forget(&learner->known, step);
}

bool knob_learner_evolve(struct knob_learner *learner, double cost_ns, uint64_t work)
{
    learner->epochs++;
    /* The comparison also rejects a cost that is not a number. */
    if (learner->frozen || work == 0 || !(cost_ns >= 0 && cost_ns <= COST_NS_MAX))
        return false;
    struct knob_learner_known *known = &learner->known;
    unsigned now = knob_learner_step(learner);
    learn(known, now, cost_ns / (double)work);
    if (is_new_phase(known, now)) {
        forget(known, now);
        return false;
    }
    unsigned before = known->wanted;
    known->wanted = choose(learner, now);
    known->rest -= known->rest > 0;
    if (known->rest > 0 || known->wanted == now || known->wanted != before)
        return false;
    change(learner, now, known->wanted > now ? now + 1 : now - 1);
    return true;
}

void knob_learner_freeze(struct knob_learner *learner)
{
    learner->frozen = true;
}

unsigned knob_learner_trace(const struct knob_learner *learner,
                            struct knob_learner_change changes[KNOB_TRACE])
{
    uint64_t count = learner->change_count < KNOB_TRACE ? learner->change_count : KNOB_TRACE;
    for (uint64_t i = 0; i < count; i++)
        changes[i] = learner->changes[(learner->change_count - count + i) % KNOB_TRACE];
    return (unsigned)count;
}

unsigned knob_learner_best(const double cost[KNOB_STEPS], unsigned now, double margin)
{
    unsigned best = now;
    for (unsigned i = 0; i < KNOB_STEPS; i++)
        if (cost[i] < cost[best])
            best = i;
    return cost[best] < cost[now] * (1 - margin) ? best : now;
}

static bool knowledge_is_sound(const struct knob_learner *learner)
{
    const struct knob_learner_known *known = &learner->known;
    double weight = 0;
    bool sound = true;
    for (unsigned i = 0; i < KNOB_STEPS; i++) {
        sound &= known->weight[i] >= 0 && known->sum_ns[i] >= 0;
        sound &= known->weight[i] > 0 ? learner->least <= i && i <= learner->most
                                      : known->sum_ns[i] <= 0;
        weight += known->weight[i];
    }
    return sound && weight * (1 - DISCOUNT) <= 1.001;
}

bool knob_learner_is_sound(const struct knob_learner *learner)
{
    unsigned step = knob_learner_step(learner);
    struct knob_learner_change changes[KNOB_TRACE];
    unsigned count = knob_learner_trace(learner, changes);
    bool sound = learner->least <= step && step <= learner->most && learner->most < KNOB_STEPS;
    for (unsigned i = 0; i < count; i++) {
        sound &= changes[i].from + 1 == changes[i].to || changes[i].to + 1 == changes[i].from;
        sound &= changes[i].to == (i + 1 < count ? changes[i + 1].from : step);
    }
    return sound && knowledge_is_sound(learner);
}
