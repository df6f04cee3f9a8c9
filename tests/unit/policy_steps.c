/* policy_steps.c - tests the contract of policy.h in a simulator. A policy uses one of six steps
 * (settings), and learns which step is the cheapest. Each epoch reports the cost of the step in
 * use, with noise.
 *
 * The constants of policy.c were chosen with this simulator. It measures the cost of learning, the
 * loss after learning and in new phases, and the number of changes.
 */
#include "policy/policy.h"

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

static const double curves[][POLICY_STEPS] = {
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
    {1.0, 1.0, 1.0, 1.0, 1.0, 3.0},      /* only the last step is dearer */
    {1.0, 1.0, 1.0, 3.0, 1.0, 1.0},      /* only a middle step is dearer */
    {1.0, 1.0, 1.0, 0.7, 1.0, 1.0},      /* only a middle step is cheaper */
    {1.0, 1.0, 1.0, 1.0, 0.7, 1.0},      /* only the last step but one is cheaper */
    {0.7, 1.0, 1.0, 1.0, 1.0, 1.0},      /* only the first step is cheaper */
};
enum { CURVES = COUNT_OF(curves) };

static unsigned best_of(const double curve[POLICY_STEPS])
{
    return policy_best(curve, 0, 0);
}

/* Runs one epoch in which the steps cost what `curve` says. Returns true if the policy changed its
 * step. A change must lead to a neighbouring step. */
static bool run_epoch(struct policy *policy, const double curve[POLICY_STEPS], double factor)
{
    unsigned before = policy_step(policy);
    bool changed = policy_evolve(policy, 1e6 * curve[before] * factor, WORK);
    unsigned after = policy_step(policy);
    CHECK(changed ? after + 1 == before || before + 1 == after : after == before);
    CHECK(policy_is_sound(policy));
    return changed;
}

static void run_epochs(struct policy *policy, const double curve[POLICY_STEPS], unsigned epochs)
{
    for (unsigned i = 0; i < epochs; i++)
        run_epoch(policy, curve, noise());
}

static struct policy policy_at(unsigned step)
{
    struct policy policy;
    policy_init(&policy, step, 0, POLICY_STEPS - 1);
    return policy;
}

/* --- cost ------------------------------------------------------------------------------------- */

/* Returns the mean cost of the first epochs over all seeds, as a multiple of the cost of the best
 * step. */
static double cost_of_learning(const double curve[POLICY_STEPS], unsigned start)
{
    double sum = 0;
    for (unsigned i = 0; i < SEEDS; i++) {
        seed(i);
        struct policy policy = policy_at(start);
        for (unsigned epoch = 0; epoch < LEARNING; epoch++) {
            sum += curve[policy_step(&policy)];
            run_epoch(&policy, curve, noise());
        }
    }
    return sum / (SEEDS * LEARNING * curve[best_of(curve)]);
}

/* A policy that starts in the middle (step 2 or 3) may cost a tenth more, any other policy 15 %.
 * From the far end of a steep curve, the steps on the way to the best one already cost more than a
 * tenth. */
TEST(the_first_200_epochs_cost_at_most_a_tenth_more_than_the_best_step)
{
    for (unsigned i = 0; i < CURVES; i++)
        for (unsigned start = 0; start < POLICY_STEPS; start++)
            CHECK(cost_of_learning(curves[i], start) <= (start == 2 || start == 3 ? 1.10 : 1.15));
}

TEST(later_epochs_cost_at_most_a_twentieth_more)
{
    for (unsigned i = 0; i < CURVES; i++) {
        double sum = 0;
        for (unsigned number = 0; number < SEEDS; number++) {
            seed(number);
            struct policy policy = policy_at(2);
            run_epochs(&policy, curves[i], LEARNING);
            for (unsigned epoch = 0; epoch < 5 * LEARNING; epoch++) {
                sum += curves[i][policy_step(&policy)];
                run_epoch(&policy, curves[i], noise());
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
        struct policy policy = policy_at(2);
        struct policy small = policy_at(2);
        struct policy large = policy_at(2);
        for (unsigned epoch = 0; epoch < 1000; epoch++) {
            double cost = 1e6 * curves[i][policy_step(&policy)] * noise();
            bool changed = policy_evolve(&policy, cost, WORK);
            CHECK(policy_evolve(&small, cost * 0x1p-40, WORK) == changed);
            CHECK(policy_evolve(&large, cost * 0x1p20, WORK / 8) == changed);
        }
    }
}

/* --- number of changes ------------------------------------------------------------------------ */

TEST(after_100_epochs_of_noise_there_is_at_most_one_change_in_20)
{
    for (unsigned i = 0; i < CURVES; i++)
        for (unsigned number = 0; number < SEEDS; number++) {
            seed(number);
            struct policy policy = policy_at(number % POLICY_STEPS);
            run_epochs(&policy, curves[i], 100);
            unsigned still = 20;
            for (unsigned epoch = 0; epoch < 900; epoch++, still++)
                if (run_epoch(&policy, curves[i], noise())) {
                    CHECK(still >= 20);
                    still = 0;
                }
        }
}

TEST(before_that_each_step_is_kept_for_at_least_three_epochs)
{
    for (unsigned number = 0; number < SEEDS; number++) {
        seed(number);
        struct policy policy = policy_at(2);
        unsigned still = 0;
        for (unsigned epoch = 0; epoch < 100; epoch++) {
            still++;
            if (run_epoch(&policy, curves[2], noise())) {
                CHECK(still >= 3);
                still = 0;
            }
        }
    }
}

TEST(a_policy_does_not_alternate_between_equal_steps)
{
    for (unsigned number = 0; number < SEEDS; number++) {
        seed(number);
        struct policy policy;
        policy_init(&policy, 2, 2, 3);
        run_epochs(&policy, curves[0], 100);
        unsigned changes = 0;
        for (unsigned epoch = 0; epoch < 2000; epoch++)
            changes += run_epoch(&policy, curves[0], noise());
        CHECK(changes <= 20);
    }
}

/* One epoch in a hundred costs fifty times as much by chance, which says nothing about the step.
 * The policy may take several such epochs close together for a new phase. */
TEST(outliers_are_rarely_taken_for_a_new_phase)
{
    unsigned taken = 0;
    for (unsigned number = 0; number < SEEDS; number++) {
        seed(number);
        struct policy policy = policy_at(2);
        for (unsigned epoch = 0; epoch < 1000; epoch++)
            run_epoch(&policy, curves[6], uniform() < 0.01 ? 50 : noise());
        taken += policy.known.epochs < 1000;
    }
    CHECK(taken <= 3);
}

/* --- new phases ------------------------------------------------------------------------------- */

/* Switches the costs from `before` to `after` at epoch 300. Returns how many epochs pass until the
 * best step is in use, or 1000 if it never is. */
static unsigned delay(unsigned number, const double before[POLICY_STEPS],
                      const double after[POLICY_STEPS])
{
    seed(number);
    struct policy policy = policy_at(2);
    run_epochs(&policy, before, 300);
    unsigned epochs = 0;
    while (epochs < 1000 && policy_step(&policy) != best_of(after)) {
        run_epoch(&policy, after, noise());
        epochs++;
    }
    return epochs;
}

TEST(a_phase_in_which_the_current_step_is_dearer_is_followed_within_150_epochs)
{
    static const double phases[][2][POLICY_STEPS] = {
        {{1.2, 1.0, 1.2, 1.4, 1.6, 1.8}, {1.8, 1.6, 1.4, 1.2, 1.0, 1.2}},
        {{1.0, 1.2, 1.4, 1.6, 1.8, 2.0}, {2.0, 1.8, 1.6, 1.4, 1.2, 1.0}},
        {{1.2, 1.0, 1.2, 1.4, 1.6, 1.8}, {5.4, 4.8, 4.2, 3.6, 3.0, 3.6}},
    };
    for (unsigned i = 0; i < COUNT_OF(phases); i++)
        for (unsigned number = 0; number < SEEDS; number++)
            CHECK(delay(number, phases[i][0], phases[i][1]) <= 150);
}

/* Assume that a policy was just trying another step when all steps became cheaper. It then has few
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

/* The step in use costs what it did before, so only the discount of old observations can reveal the
 * change. */
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
    struct policy policy = policy_at(0);
    run_epochs(&policy, curves[5], 1000);
    CHECK(policy.known.weight[0] > 0);
    run_epochs(&policy, curves[5], 1000);
    CHECK(policy.known.weight[0] == 0);
}

/* --- cases without a change ------------------------------------------------------------------- */

TEST(one_outlier_changes_nothing_but_two_may)
{
    static const double wild[] = {0, 0.5, 2, 10, 1e5};
    unsigned changes = 0;
    for (unsigned number = 0; number < SEEDS; number++) {
        seed(number);
        struct policy policy = policy_at(2);
        for (unsigned epoch = 0; epoch < 300; epoch++) {
            run_epoch(&policy, curves[2], noise());
            for (unsigned i = 0; i < COUNT_OF(wild) && policy.known.wanted == policy_step(&policy);
                 i++) {
                struct policy other = policy;
                CHECK(!run_epoch(&other, curves[2], wild[i]));
                changes += run_epoch(&other, curves[2], wild[i]);
            }
        }
    }
    CHECK(changes > 0);
}

TEST(a_frozen_policy_stays)
{
    seed(0);
    struct policy policy = policy_at(0);
    run_epochs(&policy, curves[5], 3);
    policy_freeze(&policy);
    run_epochs(&policy, curves[5], 1000);
    CHECK(policy_step(&policy) == 0);
    CHECK(policy.change_count == 0);
}

TEST(the_step_stays_within_its_bounds)
{
    for (unsigned i = 0; i < CURVES; i++)
        for (unsigned least = 0; least < POLICY_STEPS; least++)
            for (unsigned most = least; most < POLICY_STEPS; most++) {
                seed(i);
                struct policy policy;
                policy_init(&policy, (least + most) / 2, least, most);
                run_epochs(&policy, curves[i], 500); /* run_epoch() calls policy_is_sound() */
            }
}

TEST(epochs_without_work_teach_nothing)
{
    seed(0);
    struct policy policy = policy_at(2);
    run_epochs(&policy, curves[3], 50);
    struct policy_known known = policy.known;
    for (unsigned i = 0; i < 1000; i++)
        CHECK(!policy_evolve(&policy, 1e9, 0));
    CHECK(memcmp(&known, &policy.known, sizeof known) == 0);
}

TEST(impossible_costs_teach_nothing)
{
    static const double impossible[] = {NAN, -NAN, INFINITY, -INFINITY, -1, 2e15, DBL_MAX};
    seed(0);
    struct policy policy = policy_at(2);
    run_epochs(&policy, curves[3], 50);
    struct policy_known known = policy.known;
    for (unsigned i = 0; i < 100; i++)
        CHECK(!policy_evolve(&policy, impossible[i % COUNT_OF(impossible)], WORK));
    CHECK(memcmp(&known, &policy.known, sizeof known) == 0);
}

TEST(if_nothing_costs_anything_no_step_is_tried)
{
    struct policy policy = policy_at(2);
    for (unsigned i = 0; i < 1000; i++)
        CHECK(!policy_evolve(&policy, 0, WORK));
    CHECK(policy_is_sound(&policy));
}

TEST(impossible_weights_are_not_sound)
{
    struct policy policy = policy_at(2);
    run_epochs(&policy, curves[0], 100);
    REQUIRE(policy_is_sound(&policy));
    for (unsigned i = 0; i < POLICY_STEPS; i++) {
        struct policy more = policy;
        more.known.weight[i] = 1e6; /* discounting keeps the sum of all weights below 1e6 */
        CHECK(!policy_is_sound(&more));
        struct policy less = policy;
        less.known.weight[i] = -1;
        CHECK(!policy_is_sound(&less));
    }
}

TEST(after_epochs_without_cost_real_costs_are_learnt)
{
    for (unsigned number = 0; number < SEEDS; number++)
        for (unsigned epochs = 1; epochs <= 1000; epochs *= 10) {
            seed(number);
            struct policy policy = policy_at(3);
            for (unsigned i = 0; i < epochs; i++)
                policy_evolve(&policy, 0, WORK);
            run_epochs(&policy, curves[3], 150);
            CHECK(policy_step(&policy) <= 1);
        }
}

/* --- trace ------------------------------------------------------------------------------------ */

TEST(the_trace_holds_the_last_changes)
{
    seed(0);
    struct policy policy = policy_at(2);
    struct policy_change all[200];
    struct policy_change trace[POLICY_TRACE];
    unsigned count = 0;
    for (unsigned epoch = 1; epoch <= 2000; epoch++) {
        unsigned from = policy_step(&policy);
        if (run_epoch(&policy, curves[0], noise()))
            all[count++] =
                (struct policy_change){.epoch = epoch, .from = from, .to = policy_step(&policy)};
        unsigned reported = policy_trace(&policy, trace);
        REQUIRE(count < COUNT_OF(all) && reported == (count < POLICY_TRACE ? count : POLICY_TRACE));
        for (unsigned i = 0; i < reported; i++) {
            const struct policy_change *change = &all[count - reported + i];
            CHECK(trace[i].epoch == change->epoch);
            CHECK(trace[i].from == change->from && trace[i].to == change->to);
        }
    }
    CHECK(count > POLICY_TRACE);
}

TEST(the_trace_holds_the_costs_that_were_known)
{
    struct policy policy = policy_at(0);
    bool known[POLICY_STEPS] = {true};
    for (unsigned epoch = 1; epoch <= 300; epoch++) {
        unsigned from = policy_step(&policy);
        CHECK(!policy_evolve(&policy, 0, 0)); /* this call counts as an epoch */
        if (!run_epoch(&policy, curves[5], 1))
            continue;
        unsigned to = policy_step(&policy);
        struct policy_change trace[POLICY_TRACE];
        struct policy_change *last = &trace[policy_trace(&policy, trace) - 1];
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
    static const double cost[POLICY_STEPS] = {9, 8, 10, 7.5, 7, 12};
    CHECK(policy_best(cost, 2, 0) == 4);
    CHECK(policy_best(cost, 2, 0.29) == 4);
    CHECK(policy_best(cost, 2, 0.3) == 2);
    CHECK(policy_best(cost, 4, 0) == 4);
    CHECK(policy_best(cost, 3, 0.1) == 3);
}

TEST(a_cost_that_is_not_a_number_is_never_the_best)
{
    static const double cost[POLICY_STEPS] = {NAN, INFINITY, 5, NAN, 4, INFINITY};
    CHECK(policy_best(cost, 2, 0) == 4);
    CHECK(policy_best(cost, 1, 0.1) == 4);
    static const double same[POLICY_STEPS] = {0};
    for (unsigned now = 0; now < POLICY_STEPS; now++)
        CHECK(policy_best(same, now, 0) == now);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
