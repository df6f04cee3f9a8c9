/* policy_steps.c - the promises of policy.h, in a simulator: six steps, of which an epoch shows the cost of one, and noise.
 *
 * The constants of policy.c were chosen by it: what the learning costs, what is lost later and in new phases, and how many
 * changes that takes.
 */
#include "policy/policy.h"

#include "test.h"

#include <float.h>
#include <math.h>

enum {
    SEEDS = 60,
    LEARNING = 200, /* epochs */
    WORK = 1000,    /* units in an epoch */
};

static uint64_t random_state;

static void seed(unsigned number)
{
    random_state = UINT64_C(0x9E3779B97F4A7C15) * (number + 1);
}

/* Xorshift; from 0 to 1. */
static double uniform(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) * 0x1p-53;
}

/* Times about 1, with a standard deviation of a fifth: twelve dice are nearly Gaussian. */
static double noise(void)
{
    double dice = -6;
    for (unsigned i = 0; i < 12; i++)
        dice += uniform();
    double factor = 1 + 0.2 * dice;
    return factor > 0.05 ? factor : 0.05;
}

static const double curves[][POLICY_STEPS] = {
    {1.0, 1.0, 1.0, 1.0, 1.0, 1.0},      /* all the same */
    {1.0, 1.03, 1.06, 1.09, 1.12, 1.15}, /* nearly so */
    {1.0, 1.1, 1.2, 1.3, 1.4, 1.5},      /* the less the better */
    {1.0, 1.3, 1.69, 2.2, 2.86, 3.7},    /* by far */
    {1.5, 1.4, 1.3, 1.2, 1.1, 1.0},      /* the more the better */
    {3.7, 2.86, 2.2, 1.69, 1.3, 1.0},    /* by far */
    {1.5, 1.3, 1.1, 1.0, 1.1, 1.3},      /* a valley */
    {2.0, 1.7, 1.4, 1.2, 1.0, 1.2},      /* at one side */
    {2.0, 1.5, 1.0, 1.5, 2.0, 2.5},      /* a narrow one */
    {1.5, 1.2, 1.0, 1.0, 1.2, 1.5},      /* one of two steps */
    {1.0, 1.0, 1.0, 1.0, 1.0, 3.0},      /* the last is worse */
    {1.0, 1.0, 1.0, 3.0, 1.0, 1.0},      /* one between is worse */
    {1.0, 1.0, 1.0, 0.7, 1.0, 1.0},      /* one between is better */
    {1.0, 1.0, 1.0, 1.0, 0.7, 1.0},      /* and another */
    {0.7, 1.0, 1.0, 1.0, 1.0, 1.0},      /* the first is better */
};
enum { CURVES = COUNT_OF(curves) };

static unsigned best_of(const double curve[POLICY_STEPS])
{
    return policy_best(curve, 0, 0);
}

/* One epoch of the world as `curve` has it; true: the step changed, by one. */
static bool live(struct policy *policy, const double curve[POLICY_STEPS], double factor)
{
    unsigned before = policy_step(policy);
    bool changed = policy_evolve(policy, 1e6 * curve[before] * factor, WORK);
    unsigned after = policy_step(policy);
    CHECK(changed ? after + 1 == before || before + 1 == after : after == before);
    CHECK(policy_is_sound(policy));
    return changed;
}

static void live_through(struct policy *policy, const double curve[POLICY_STEPS], unsigned epochs)
{
    for (unsigned i = 0; i < epochs; i++)
        live(policy, curve, noise());
}

static struct policy policy_at(unsigned step)
{
    struct policy policy;
    policy_init(&policy, step, 0, POLICY_STEPS - 1);
    return policy;
}

/* --- what it costs ------------------------------------------------------------------------------------------------ */

/* What the first epochs cost, in the mean over all seeds, as a multiple of what the best step would have. */
static double cost_of_learning(const double curve[POLICY_STEPS], unsigned start)
{
    double sum = 0;
    for (unsigned i = 0; i < SEEDS; i++) {
        seed(i);
        struct policy policy = policy_at(start);
        for (unsigned epoch = 0; epoch < LEARNING; epoch++) {
            sum += curve[policy_step(&policy)];
            live(&policy, curve, noise());
        }
    }
    return sum / (SEEDS * LEARNING * curve[best_of(curve)]);
}

/* From the far end of a steep slope the way alone costs more than a tenth. */
TEST(the_first_200_epochs_cost_at_most_a_tenth_more_than_the_best_step)
{
    for (unsigned i = 0; i < CURVES; i++)
        for (unsigned start = 0; start < POLICY_STEPS; start++)
            CHECK(cost_of_learning(curves[i], start) <= (start == 2 || start == 3 ? 1.10 : 1.15));
}

TEST(what_comes_later_costs_at_most_a_twentieth_more)
{
    for (unsigned i = 0; i < CURVES; i++) {
        double sum = 0;
        for (unsigned number = 0; number < SEEDS; number++) {
            seed(number);
            struct policy policy = policy_at(2);
            live_through(&policy, curves[i], LEARNING);
            for (unsigned epoch = 0; epoch < 5 * LEARNING; epoch++) {
                sum += curves[i][policy_step(&policy)];
                live(&policy, curves[i], noise());
            }
        }
        CHECK(sum / (SEEDS * 5 * LEARNING * curves[i][best_of(curves[i])]) <= 1.05);
    }
}

/* A cost in other units, and of other units of work, is the same cost. */
TEST(the_unit_does_not_matter)
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

/* --- how often it changes ----------------------------------------------------------------------------------------- */

TEST(after_100_epochs_of_noise_there_is_at_most_one_change_in_20)
{
    for (unsigned i = 0; i < CURVES; i++)
        for (unsigned number = 0; number < SEEDS; number++) {
            seed(number);
            struct policy policy = policy_at(number % POLICY_STEPS);
            live_through(&policy, curves[i], 100);
            unsigned still = 20;
            for (unsigned epoch = 0; epoch < 900; epoch++, still++)
                if (live(&policy, curves[i], noise())) {
                    CHECK(still >= 20);
                    still = 0;
                }
        }
}

TEST(before_that_each_step_is_kept_for_three_epochs)
{
    for (unsigned number = 0; number < SEEDS; number++) {
        seed(number);
        struct policy policy = policy_at(2);
        unsigned still = 0;
        for (unsigned epoch = 0; epoch < 100; epoch++) {
            still++;
            if (live(&policy, curves[2], noise())) {
                CHECK(still >= 3);
                still = 0;
            }
        }
    }
}

TEST(two_steps_that_cost_the_same_are_not_changed_in_turns)
{
    for (unsigned number = 0; number < SEEDS; number++) {
        seed(number);
        struct policy policy;
        policy_init(&policy, 2, 2, 3);
        live_through(&policy, curves[0], 100);
        unsigned changes = 0;
        for (unsigned epoch = 0; epoch < 2000; epoch++)
            changes += live(&policy, curves[0], noise());
        CHECK(changes <= 20);
    }
}

/* One in a hundred costs fifty times as much, which says nothing about a step. Several at once may. */
TEST(wild_epochs_are_hardly_ever_taken_for_a_phase)
{
    unsigned taken = 0;
    for (unsigned number = 0; number < SEEDS; number++) {
        seed(number);
        struct policy policy = policy_at(2);
        for (unsigned epoch = 0; epoch < 1000; epoch++)
            live(&policy, curves[6], uniform() < 0.01 ? 50 : noise());
        taken += policy.known.epochs < 1000;
    }
    CHECK(taken <= 3);
}

/* --- what it follows ---------------------------------------------------------------------------------------------- */

/* Epochs from the 300th, when `after` begins, until its best step is in use; 1000: it never was. */
static unsigned delay(unsigned number, const double before[POLICY_STEPS],
                      const double after[POLICY_STEPS])
{
    seed(number);
    struct policy policy = policy_at(2);
    live_through(&policy, before, 300);
    unsigned epochs = 0;
    while (epochs < 1000 && policy_step(&policy) != best_of(after)) {
        live(&policy, after, noise());
        epochs++;
    }
    return epochs;
}

TEST(a_phase_in_which_the_step_in_use_is_dearer_is_followed_within_150_epochs)
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

/* Who just tried another step when all became cheaper knows little of that one, and takes the others for dear. */
TEST(a_phase_in_which_all_is_cheaper_is_followed_within_150_epochs_by_nine_of_ten)
{
    static const double before[] = {3.6, 3.0, 3.6, 4.2, 4.8, 5.4};
    static const double after[] = {1.8, 1.6, 1.4, 1.2, 1.0, 1.2};
    unsigned late = 0;
    for (unsigned number = 0; number < SEEDS; number++)
        late += delay(number, before, after) > 150;
    CHECK(late <= SEEDS / 10);
}

/* The step in use costs what it did, so only the discount can tell. */
TEST(what_became_cheaper_unseen_is_found_within_500_epochs)
{
    static const double before[] = {1.2, 1.0, 1.2, 1.4, 1.6, 1.8};
    static const double after[] = {1.2, 1.0, 0.8, 1.0, 1.2, 1.4};
    for (unsigned number = 0; number < SEEDS; number++)
        CHECK(delay(number, before, after) <= 500);
}

/* Nobody goes to 0 again, where the worst would be; a weight of nearly 0 would tell nothing right. */
TEST(what_was_seen_long_ago_is_forgotten)
{
    seed(0);
    struct policy policy = policy_at(0);
    live_through(&policy, curves[5], 1000);
    CHECK(policy.known.weight[0] > 0);
    live_through(&policy, curves[5], 1000);
    CHECK(policy.known.weight[0] == 0);
}

/* --- what it does not --------------------------------------------------------------------------------------------- */

TEST(one_epoch_alone_changes_nothing_however_wild_but_two_may)
{
    static const double wild[] = {0, 0.5, 2, 10, 1e5};
    unsigned changes = 0;
    for (unsigned number = 0; number < SEEDS; number++) {
        seed(number);
        struct policy policy = policy_at(2);
        for (unsigned epoch = 0; epoch < 300; epoch++) {
            live(&policy, curves[2], noise());
            for (unsigned i = 0; i < COUNT_OF(wild) && policy.known.wanted == policy_step(&policy);
                 i++) {
                struct policy other = policy;
                CHECK(!live(&other, curves[2], wild[i]));
                changes += live(&other, curves[2], wild[i]);
            }
        }
    }
    CHECK(changes > 0);
}

TEST(a_frozen_policy_stays)
{
    seed(0);
    struct policy policy = policy_at(0);
    live_through(&policy, curves[5], 3);
    policy_freeze(&policy);
    live_through(&policy, curves[5], 1000);
    CHECK(policy_step(&policy) == 0);
    CHECK(policy.change_count == 0);
}

TEST(the_bounds_are_kept)
{
    for (unsigned i = 0; i < CURVES; i++)
        for (unsigned least = 0; least < POLICY_STEPS; least++)
            for (unsigned most = least; most < POLICY_STEPS; most++) {
                seed(i);
                struct policy policy;
                policy_init(&policy, (least + most) / 2, least, most);
                live_through(&policy, curves[i], 500); /* policy_is_sound() looks */
            }
}

TEST(epochs_without_work_teach_nothing)
{
    seed(0);
    struct policy policy = policy_at(2);
    live_through(&policy, curves[3], 50);
    struct policy_known known = policy.known;
    for (unsigned i = 0; i < 1000; i++)
        CHECK(!policy_evolve(&policy, 1e9, 0));
    CHECK(memcmp(&known, &policy.known, sizeof known) == 0);
}

TEST(costs_that_cannot_be_teach_nothing)
{
    static const double impossible[] = {NAN, -NAN, INFINITY, -INFINITY, -1, 2e15, DBL_MAX};
    seed(0);
    struct policy policy = policy_at(2);
    live_through(&policy, curves[3], 50);
    struct policy_known known = policy.known;
    for (unsigned i = 0; i < 100; i++)
        CHECK(!policy_evolve(&policy, impossible[i % COUNT_OF(impossible)], WORK));
    CHECK(memcmp(&known, &policy.known, sizeof known) == 0);
}

TEST(where_nothing_costs_anything_nothing_is_tried)
{
    struct policy policy = policy_at(2);
    for (unsigned i = 0; i < 1000; i++)
        CHECK(!policy_evolve(&policy, 0, WORK));
    CHECK(policy_is_sound(&policy));
}

TEST(weights_that_cannot_be_are_not_sound)
{
    struct policy policy = policy_at(2);
    live_through(&policy, curves[0], 100);
    REQUIRE(policy_is_sound(&policy));
    for (unsigned i = 0; i < POLICY_STEPS; i++) {
        struct policy more = policy;
        more.known.weight[i] = 1e6; /* discounting keeps all of them together below that */
        CHECK(!policy_is_sound(&more));
        struct policy less = policy;
        less.known.weight[i] = -1;
        CHECK(!policy_is_sound(&less));
    }
}

TEST(what_cost_nothing_is_learnt_anew_once_it_does)
{
    for (unsigned number = 0; number < SEEDS; number++)
        for (unsigned epochs = 1; epochs <= 1000; epochs *= 10) {
            seed(number);
            struct policy policy = policy_at(3);
            for (unsigned i = 0; i < epochs; i++)
                policy_evolve(&policy, 0, WORK);
            live_through(&policy, curves[3], 150);
            CHECK(policy_step(&policy) <= 1);
        }
}

/* --- what it tells ------------------------------------------------------------------------------------------------ */

TEST(the_trace_tells_the_last_changes)
{
    seed(0);
    struct policy policy = policy_at(2);
    struct policy_change all[200];
    struct policy_change trace[POLICY_TRACE];
    unsigned count = 0;
    for (unsigned epoch = 1; epoch <= 2000; epoch++) {
        unsigned from = policy_step(&policy);
        if (live(&policy, curves[0], noise()))
            all[count++] =
                (struct policy_change){.epoch = epoch, .from = from, .to = policy_step(&policy)};
        unsigned told = policy_trace(&policy, trace);
        REQUIRE(count < COUNT_OF(all) && told == (count < POLICY_TRACE ? count : POLICY_TRACE));
        for (unsigned i = 0; i < told; i++) {
            const struct policy_change *change = &all[count - told + i];
            CHECK(trace[i].epoch == change->epoch);
            CHECK(trace[i].from == change->from && trace[i].to == change->to);
        }
    }
    CHECK(count > POLICY_TRACE);
}

TEST(the_trace_tells_what_was_known)
{
    struct policy policy = policy_at(0);
    bool known[POLICY_STEPS] = {true};
    for (unsigned epoch = 1; epoch <= 300; epoch++) {
        unsigned from = policy_step(&policy);
        CHECK(!policy_evolve(&policy, 0, 0)); /* which is an epoch too */
        if (!live(&policy, curves[5], 1))
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

/* --- where all costs are known ------------------------------------------------------------------------------------ */

TEST(the_best_is_the_cheapest_if_it_is_so_by_more_than_the_margin)
{
    static const double cost[POLICY_STEPS] = {9, 8, 10, 7.5, 7, 12};
    CHECK(policy_best(cost, 2, 0) == 4);
    CHECK(policy_best(cost, 2, 0.29) == 4);
    CHECK(policy_best(cost, 2, 0.3) == 2);
    CHECK(policy_best(cost, 4, 0) == 4);
    CHECK(policy_best(cost, 3, 0.1) == 3);
}

TEST(what_is_not_a_number_is_never_the_best)
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
