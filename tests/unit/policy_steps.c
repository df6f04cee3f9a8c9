/* policy_steps.c - tests the contract of knob_learner.h in a simulator. A learner uses one of six
 * steps (settings), and learns which step is the cheapest. Each epoch reports the cost of the step
 * in use, with noise.
 *
 * The constants of knob_learner.c were chosen with this simulator. It measures the cost of
 * learning, the loss after learning and in new phases, and the number of changes.
 */
#include "policy/knob_learner.h"

#include "test.h"

#include <float.h>
#include <math.h>

enum {
    SEEDS = 60,
    LEARNING = 200, /* epochs */
    WORK = 1000,    /* units per epoch */
};

static uint64_t random_state;

static void seed(unsigned number)
{
    random_state = UINT64_C(0x9E3779B97F4A7C15) * (number + 1);
}

/* Returns a random number from 0 to 1 (xorshift). */
static double uniform(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) * 0x1p-53;
}

/* Returns a factor with a mean of about 1 and a standard deviation of a fifth. A sum of twelve
 * uniform numbers is nearly Gaussian. */
static double noise(void)
{
    double dice = -6;
    for (unsigned i = 0; i < 12; i++)
        dice += uniform();
    double factor = 1 + 0.2 * dice;
    return factor > 0.05 ? factor : 0.05;
}

static const double curves[][KNOB_STEPS] = {
    {1.0, 1.0, 1.0, 1.0, 1.0, 1.0},      /* all steps cost the same */
    {1.0, 1.03, 1.06, 1.09, 1.12, 1.15}, /* nearly the same */
    {1.0, 1.1, 1.2, 1.3, 1.4, 1.5},      /* lower steps are cheaper */
    {1.0, 1.3, 1.69, 2.2, 2.86, 3.7},    /* lower steps are far cheaper */
    {1.5, 1.4, 1.3, 1.2, 1.1, 1.0},      /* higher steps are cheaper */
    {3.7, 2.86, 2.2, 1.69, 1.3, 1.0},    /* higher steps are far cheaper */
    {1.5, 1.3, 1.1, 1.0, 1.1, 1.3},      /* a valley */
    {2.0, 1.7, 1.4, 1.2, 1.0, 1.2},      /* a valley at one side */
    {2.0, 1.5, 1.0, 1.5, 2.0, 2.5},      /* a narrow valley */
    {1.5, 1.2, 1.0, 1.0, 1.2, 1.5},      /* a valley of two steps */
    {1.0, 1.0, 1.0, 1.0, 1.0, 3.0},      /* only the last step costs more */
    {1.0, 1.0, 1.0, 3.0, 1.0, 1.0},      /* only a middle step costs more */
    {1.0, 1.0, 1.0, 0.7, 1.0, 1.0},      /* only a middle step is cheaper */
    {1.0, 1.0, 1.0, 1.0, 0.7, 1.0},      /* only the last step but one is cheaper */
    {0.7, 1.0, 1.0, 1.0, 1.0, 1.0},      /* only the first step is cheaper */
};
enum { CURVES = COUNT_OF(curves) };

static unsigned best_of(const double curve[KNOB_STEPS])
{
    return knob_learner_best(curve, 0, 0);
}

/* Runs one epoch in which the steps cost what `curve` says. Returns true if the learner changed its
 * step. A change must lead to a neighbouring step. */
static bool run_epoch(struct knob_learner *learner, const double curve[KNOB_STEPS], double factor)
{
    unsigned before = knob_learner_step(learner);
    bool changed = knob_learner_evolve(learner, 1e6 * curve[before] * factor, WORK);
    unsigned after = knob_learner_step(learner);
    CHECK(changed ? after + 1 == before || before + 1 == after : after == before);
    CHECK(knob_learner_is_sound(learner));
    return changed;
}

static void run_epochs(struct knob_learner *learner, const double curve[KNOB_STEPS],
                       unsigned epochs)
{
    for (unsigned i = 0; i < epochs; i++)
        run_epoch(learner, curve, noise());
}

static struct knob_learner learner_at(unsigned step)
{
    struct knob_learner learner;
    knob_learner_init(&learner, step, 0, KNOB_STEPS - 1);
    return learner;
}

/* --- cost ------------------------------------------------------------------------------------- */

/* Returns the mean cost of the first epochs over all seeds, as a multiple of the cost of the best
 * step. */
static double cost_of_learning(const double curve[KNOB_STEPS], unsigned start)
{
    double sum = 0;
    for (unsigned i = 0; i < SEEDS; i++) {
        seed(i);
        struct knob_learner learner = learner_at(start);
        for (unsigned epoch = 0; epoch < LEARNING; epoch++) {
            sum += curve[knob_learner_step(&learner)];
            run_epoch(&learner, curve, noise());
        }
    }
    return sum / (SEEDS * LEARNING * curve[best_of(curve)]);
}

/* A learner that starts in the middle (step 2 or 3) may cost a tenth more, any other learner 15 %.
 * From the far end of a steep curve, the steps on the way to the best one already cost more than a
 * tenth. */
TEST(the_first_200_epochs_cost_at_most_a_tenth_more_than_the_best_step)
{
    for (unsigned i = 0; i < CURVES; i++)
        for (unsigned start = 0; start < KNOB_STEPS; start++)
            CHECK(cost_of_learning(curves[i], start) <= (start == 2 || start == 3 ? 1.10 : 1.15));
}

TEST(later_epochs_cost_at_most_a_twentieth_more)
{
    for (unsigned i = 0; i < CURVES; i++) {
        double sum = 0;
        for (unsigned number = 0; number < SEEDS; number++) {
            seed(number);
            struct knob_learner learner = learner_at(2);
            run_epochs(&learner, curves[i], LEARNING);
            for (unsigned epoch = 0; epoch < 5 * LEARNING; epoch++) {
                sum += curves[i][knob_learner_step(&learner)];
                run_epoch(&learner, curves[i], noise());
            }
        }
        CHECK(sum / (SEEDS * 5 * LEARNING * curves[i][best_of(curves[i])]) <= 1.05);
    }
}

/* The same costs in other units, or for other units of work, give the same decisions. */
TEST(the_unit_of_cost_does_not_matter)
{
    for (unsigned i = 0; i < CURVES; i++) {
        seed(i);
        struct knob_learner learner = learner_at(2);
        struct knob_learner small = learner_at(2);
        struct knob_learner large = learner_at(2);
        for (unsigned epoch = 0; epoch < 1000; epoch++) {
            double cost = 1e6 * curves[i][knob_learner_step(&learner)] * noise();
            bool changed = knob_learner_evolve(&learner, cost, WORK);
            CHECK(knob_learner_evolve(&small, cost * 0x1p-40, WORK) == changed);
            CHECK(knob_learner_evolve(&large, cost * 0x1p20, WORK / 8) == changed);
        }
    }
}

/* --- number of changes ------------------------------------------------------------------------ */

TEST(after_100_epochs_of_noise_there_is_at_most_one_change_in_20)
{
    for (unsigned i = 0; i < CURVES; i++)
        for (unsigned number = 0; number < SEEDS; number++) {
            seed(number);
            struct knob_learner learner = learner_at(number % KNOB_STEPS);
            run_epochs(&learner, curves[i], 100);
            unsigned still = 20;
            for (unsigned epoch = 0; epoch < 900; epoch++, still++)
                if (run_epoch(&learner, curves[i], noise())) {
                    CHECK(still >= 20);
                    still = 0;
                }
        }
}

TEST(before_that_each_step_is_kept_for_at_least_three_epochs)
{
    for (unsigned number = 0; number < SEEDS; number++) {
        seed(number);
        struct knob_learner learner = learner_at(2);
        unsigned still = 0;
        for (unsigned epoch = 0; epoch < 100; epoch++) {
            still++;
            if (run_epoch(&learner, curves[2], noise())) {
                CHECK(still >= 3);
                still = 0;
            }
        }
    }
}

TEST(a_learner_does_not_alternate_between_equal_steps)
{
    for (unsigned number = 0; number < SEEDS; number++) {
        seed(number);
        struct knob_learner learner;
        knob_learner_init(&learner, 2, 2, 3);
        run_epochs(&learner, curves[0], 100);
        unsigned changes = 0;
        for (unsigned epoch = 0; epoch < 2000; epoch++)
            changes += run_epoch(&learner, curves[0], noise());
        CHECK(changes <= 20);
    }
}

/* One epoch in a hundred costs fifty times as much by chance, which says nothing about the step.
 * The learner may take several such epochs close together for a new phase. */
TEST(outliers_are_rarely_taken_for_a_new_phase)
{
    unsigned taken = 0;
    for (unsigned number = 0; number < SEEDS; number++) {
        seed(number);
        struct knob_learner learner = learner_at(2);
        for (unsigned epoch = 0; epoch < 1000; epoch++)
            run_epoch(&learner, curves[6], uniform() < 0.01 ? 50 : noise());
        taken += learner.known.epochs < 1000;
    }
    CHECK(taken <= 3);
}

/* --- new phases ------------------------------------------------------------------------------- */

/* Switches the costs from `before` to `after` at epoch 300. Returns how many epochs pass until the
 * best step is in use, or 1000 if it never is. */
static unsigned delay(unsigned number, const double before[KNOB_STEPS],
                      const double after[KNOB_STEPS])
{
    seed(number);
    struct knob_learner learner = learner_at(2);
    run_epochs(&learner, before, 300);
    unsigned epochs = 0;
    while (epochs < 1000 && knob_learner_step(&learner) != best_of(after)) {
        run_epoch(&learner, after, noise());
        epochs++;
    }
    return epochs;
}

TEST(a_phase_in_which_the_current_step_costs_more_is_followed_within_150_epochs)
{
    static const double phases[][2][KNOB_STEPS] = {
        {{1.2, 1.0, 1.2, 1.4, 1.6, 1.8}, {1.8, 1.6, 1.4, 1.2, 1.0, 1.2}},
        {{1.0, 1.2, 1.4, 1.6, 1.8, 2.0}, {2.0, 1.8, 1.6, 1.4, 1.2, 1.0}},
        {{1.2, 1.0, 1.2, 1.4, 1.6, 1.8}, {5.4, 4.8, 4.2, 3.6, 3.0, 3.6}},
    };
    for (unsigned i = 0; i < COUNT_OF(phases); i++)
        for (unsigned number = 0; number < SEEDS; number++)
            CHECK(delay(number, phases[i][0], phases[i][1]) <= 150);
}

/* Assume that a learner was just trying another step when all steps became cheaper. It then has few
 * observations of that step, and still remembers the old, higher costs of the other steps. */
TEST(a_phase_in_which_all_steps_are_cheaper_is_followed_within_150_epochs_in_nine_of_ten_cases)
{
    static const double before[] = {3.6, 3.0, 3.6, 4.2, 4.8, 5.4};
    static const double after[] = {1.8, 1.6, 1.4, 1.2, 1.0, 1.2};
    unsigned late = 0;
    for (unsigned number = 0; number < SEEDS; number++)
        late += delay(number, before, after) > 150;
    CHECK(late <= SEEDS / 10);
}

/* The step in use costs as much as before the change. So the learner finds the cheaper step only
 * because it discounts old observations and tries other steps again. */
TEST(an_unused_step_that_became_cheaper_is_found_within_500_epochs)
{
    static const double before[] = {1.2, 1.0, 1.2, 1.4, 1.6, 1.8};
    static const double after[] = {1.2, 1.0, 0.8, 1.0, 1.2, 1.4};
    for (unsigned number = 0; number < SEEDS; number++)
        CHECK(delay(number, before, after) <= 500);
}

/* Step 0 is the worst here and is not used again. The weight of its observations therefore falls to
 * nearly 0, and their mean would then be meaningless. */
TEST(old_observations_are_forgotten)
{
    seed(0);
    struct knob_learner learner = learner_at(0);
    run_epochs(&learner, curves[5], 1000);
    CHECK(learner.known.weight[0] > 0);
    run_epochs(&learner, curves[5], 1000);
    CHECK(learner.known.weight[0] == 0);
}

/* --- cases without a change ------------------------------------------------------------------- */

TEST(one_outlier_changes_nothing_but_two_may)
{
    static const double wild[] = {0, 0.5, 2, 10, 1e5};
    unsigned changes = 0;
    for (unsigned number = 0; number < SEEDS; number++) {
        seed(number);
        struct knob_learner learner = learner_at(2);
        for (unsigned epoch = 0; epoch < 300; epoch++) {
            run_epoch(&learner, curves[2], noise());
            for (unsigned i = 0;
                 i < COUNT_OF(wild) && learner.known.wanted == knob_learner_step(&learner); i++) {
                struct knob_learner other = learner;
                CHECK(!run_epoch(&other, curves[2], wild[i]));
                changes += run_epoch(&other, curves[2], wild[i]);
            }
        }
    }
    CHECK(changes > 0);
}

TEST(a_frozen_learner_stays)
{
    seed(0);
    struct knob_learner learner = learner_at(0);
    run_epochs(&learner, curves[5], 3);
    knob_learner_freeze(&learner);
    run_epochs(&learner, curves[5], 1000);
    CHECK(knob_learner_step(&learner) == 0);
    CHECK(learner.change_count == 0);
}

TEST(the_step_stays_within_its_bounds)
{
    for (unsigned i = 0; i < CURVES; i++)
        for (unsigned least = 0; least < KNOB_STEPS; least++)
            for (unsigned most = least; most < KNOB_STEPS; most++) {
                seed(i);
                struct knob_learner learner;
                knob_learner_init(&learner, (least + most) / 2, least, most);
                run_epochs(&learner, curves[i], 500); /* checks knob_learner_is_sound() */
            }
}

TEST(epochs_without_work_teach_nothing)
{
    seed(0);
    struct knob_learner learner = learner_at(2);
    run_epochs(&learner, curves[3], 50);
    struct knob_learner_known known = learner.known;
    for (unsigned i = 0; i < 1000; i++)
        CHECK(!knob_learner_evolve(&learner, 1e9, 0));
    CHECK(memcmp(&known, &learner.known, sizeof known) == 0);
}

TEST(impossible_costs_teach_nothing)
{
    static const double impossible[] = {NAN, -NAN, INFINITY, -INFINITY, -1, 2e15, DBL_MAX};
    seed(0);
    struct knob_learner learner = learner_at(2);
    run_epochs(&learner, curves[3], 50);
    struct knob_learner_known known = learner.known;
    for (unsigned i = 0; i < 100; i++)
        CHECK(!knob_learner_evolve(&learner, impossible[i % COUNT_OF(impossible)], WORK));
    CHECK(memcmp(&known, &learner.known, sizeof known) == 0);
}

TEST(if_nothing_costs_anything_no_step_is_tried)
{
    struct knob_learner learner = learner_at(2);
    for (unsigned i = 0; i < 1000; i++)
        CHECK(!knob_learner_evolve(&learner, 0, WORK));
    CHECK(knob_learner_is_sound(&learner));
}

TEST(impossible_weights_are_not_sound)
{
    struct knob_learner learner = learner_at(2);
    run_epochs(&learner, curves[0], 100);
    REQUIRE(knob_learner_is_sound(&learner));
    for (unsigned i = 0; i < KNOB_STEPS; i++) {
        struct knob_learner more = learner;
        more.known.weight[i] = 1e6; /* discounting keeps the sum of all weights below 1e6 */
        CHECK(!knob_learner_is_sound(&more));
        struct knob_learner less = learner;
        less.known.weight[i] = -1;
        CHECK(!knob_learner_is_sound(&less));
    }
}

TEST(after_epochs_without_cost_real_costs_are_learnt)
{
    for (unsigned number = 0; number < SEEDS; number++)
        for (unsigned epochs = 1; epochs <= 1000; epochs *= 10) {
            seed(number);
            struct knob_learner learner = learner_at(3);
            for (unsigned i = 0; i < epochs; i++)
                knob_learner_evolve(&learner, 0, WORK);
            run_epochs(&learner, curves[3], 150);
            CHECK(knob_learner_step(&learner) <= 1);
        }
}

/* Later epochs at the same step tell by how much its costs differ. */
TEST(the_noise_is_learnt_from_the_second_epoch_of_a_step_on)
{
    struct knob_learner learner = learner_at(3);
    knob_learner_evolve(&learner, 100 * WORK, WORK);
    CHECK(learner.known.noise_weight == 1);
    double first = learner.known.noise_sum_ns;
    knob_learner_evolve(&learner, 101 * WORK, WORK);
    CHECK(learner.known.noise_weight > 1.5 && learner.known.noise_sum_ns != first);
}

/* --- trace ------------------------------------------------------------------------------------ */

TEST(the_trace_holds_the_last_changes)
{
    seed(0);
    struct knob_learner learner = learner_at(2);
    struct knob_learner_change all[200];
    struct knob_learner_change trace[KNOB_TRACE];
    unsigned count = 0;
    for (unsigned epoch = 1; epoch <= 2000; epoch++) {
        unsigned from = knob_learner_step(&learner);
        if (run_epoch(&learner, curves[0], noise()))
            all[count++] = (struct knob_learner_change){
                .epoch = epoch, .from = from, .to = knob_learner_step(&learner)};
        unsigned reported = knob_learner_trace(&learner, trace);
        REQUIRE(count < COUNT_OF(all) && reported == (count < KNOB_TRACE ? count : KNOB_TRACE));
        for (unsigned i = 0; i < reported; i++) {
            const struct knob_learner_change *change = &all[count - reported + i];
            CHECK(trace[i].epoch == change->epoch);
            CHECK(trace[i].from == change->from && trace[i].to == change->to);
        }
    }
    CHECK(count > KNOB_TRACE);
}

TEST(the_trace_holds_the_costs_that_were_known)
{
    struct knob_learner learner = learner_at(0);
    bool known[KNOB_STEPS] = {true};
    for (unsigned epoch = 1; epoch <= 300; epoch++) {
        unsigned from = knob_learner_step(&learner);
        CHECK(!knob_learner_evolve(&learner, 0, 0)); /* this call counts as an epoch */
        if (!run_epoch(&learner, curves[5], 1))
            continue;
        unsigned to = knob_learner_step(&learner);
        struct knob_learner_change trace[KNOB_TRACE];
        struct knob_learner_change *last = &trace[knob_learner_trace(&learner, trace) - 1];
        CHECK(last->epoch == 2 * epoch);
        CHECK(fabs(last->cost_ns - 1e3 * curves[5][from]) < 1e-6);
        CHECK(fabs(last->expected_ns - (known[to] ? 1e3 * curves[5][to] : 0)) < 1e-6);
        known[to] = true;
    }
    CHECK(known[5]);
}

/* --- known costs ------------------------------------------------------------------------------ */

TEST(the_best_step_is_cheapest_by_more_than_the_margin)
{
    static const double cost[KNOB_STEPS] = {9, 8, 10, 7.5, 7, 12};
    CHECK(knob_learner_best(cost, 2, 0) == 4);
    CHECK(knob_learner_best(cost, 2, 0.29) == 4);
    CHECK(knob_learner_best(cost, 2, 0.3) == 2);
    CHECK(knob_learner_best(cost, 4, 0) == 4);
    CHECK(knob_learner_best(cost, 3, 0.1) == 3);
}

TEST(a_cost_that_is_not_a_number_is_never_the_best)
{
    static const double cost[KNOB_STEPS] = {NAN, INFINITY, 5, NAN, 4, INFINITY};
    CHECK(knob_learner_best(cost, 2, 0) == 4);
    CHECK(knob_learner_best(cost, 1, 0.1) == 4);
    static const double same[KNOB_STEPS] = {0};
    for (unsigned now = 0; now < KNOB_STEPS; now++)
        CHECK(knob_learner_best(same, now, 0) == now);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
