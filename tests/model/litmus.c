/* litmus.c - tests the explorer itself: with small programs whose outcomes are known, and with
 * random programs, which must have the same outcomes with and without the reduction of orders. */
#include "memory.h"
#include "os/lock.h"

#include "../unit/test.h"

#include "base/random.h"

#include <stdatomic.h>
#include <stdlib.h>

/* The memory that the threads share, and the only memory that is tracked. */
static struct {
    _Alignas(64) _Atomic uint32_t x[4];
    uint64_t plain;
    struct lock lock[2];
} shared;

/* Values that threads read go into `seen`. An outcome is a hash of `seen` and of `shared.x`. */
enum { SEEN = 24, OUTCOMES = 4096 };
static uint8_t seen[MODEL_CHECKER_THREADS_MAX][SEEN];
static unsigned seen_count[MODEL_CHECKER_THREADS_MAX];
static uint64_t outcomes[OUTCOMES];
static unsigned outcome_count;

static void see(unsigned self, uint32_t value)
{
    seen[self][seen_count[self]++] = (uint8_t)value;
}

static void nothing(void)
{
}

static void nothing_of(unsigned thread)
{
    (void)thread;
}

static void forget(void)
{
    memset(seen, 0, sizeof seen);
    memset(seen_count, 0, sizeof seen_count);
}

static void note_outcome(void)
{
    uint64_t outcome = UINT64_C(0xcbf29ce484222325);
    for (unsigned i = 0; i < sizeof seen; i++)
        outcome = (outcome ^ ((uint8_t *)seen)[i]) * UINT64_C(0x100000001b3);
    for (unsigned i = 0; i < 4; i++)
        outcome = (outcome ^ shared.x[i]) * UINT64_C(0x100000001b3);
    unsigned place = 0;
    while (place < outcome_count && outcomes[place] < outcome)
        place++;
    if (place < outcome_count && outcomes[place] == outcome)
        return;
    if (outcome_count == OUTCOMES)
        model_checker_fail("more outcomes than expected");
    memmove(&outcomes[place + 1], &outcomes[place], (outcome_count - place) * sizeof outcomes[0]);
    outcomes[place] = outcome;
    outcome_count++;
}

static struct model_checker_plan plan_of(const char *name, unsigned threads, void (*body)(unsigned),
                                         unsigned stale_most)
{
    outcome_count = 0;
    return (struct model_checker_plan){.name = name,
                                       .threads = threads,
                                       .setup = nothing,
                                       .begin = forget,
                                       .body = body,
                                       .enter = nothing_of,
                                       .leave = nothing_of,
                                       .check = note_outcome,
                                       .stale_most = stale_most,
                                       .executions_most = 1000 * 1000,
                                       .quiet = true};
}

static struct model_checker_result outcomes_of(const char *name, unsigned threads,
                                               void (*body)(unsigned), unsigned stale_most)
{
    struct model_checker_plan plan = plan_of(name, threads, body, stale_most);
    return model_checker_explore(&plan);
}

void model_checker_describe(const void *address, char *name, size_t bytes)
{
    snprintf(name, bytes, "byte %zu", (size_t)((const char *)address - (const char *)&shared));
}

void model_checker_describe_value(const void *address, uint64_t value, char *text, size_t bytes)
{
    (void)address;
    snprintf(text, bytes, "%llu", (unsigned long long)value);
}

const char *model_checker_thread_name(unsigned thread)
{
    static const char *const names[] = {"A", "B", "C", "D"};
    return names[thread];
}

#define LOAD(i, order)         atomic_load_explicit(&shared.x[i], memory_order_##order)
#define STORE(i, value, order) atomic_store_explicit(&shared.x[i], value, memory_order_##order)

static void buffers(unsigned self)
{
    STORE(self, 1, release);
    see(self, LOAD(1 - self, acquire));
}

/* In every interleaving at least one thread loads the other thread's store, which makes three
 * outcomes. On a real processor both loads can miss the other thread's store, which is the fourth
 * outcome. */
TEST(store_buffering_is_seen_when_loads_may_be_stale)
{
    CHECK(!outcomes_of("buffers", 2, buffers, 0).failed);
    CHECK(outcome_count == 3);
    CHECK(!outcomes_of("buffers", 2, buffers, 2).failed);
    CHECK(outcome_count == 4);
}

static void passes_relaxed(unsigned self)
{
    if (self == 0) {
        STORE(0, 1, relaxed);
        STORE(1, 1, relaxed);
    } else {
        see(self, LOAD(1, relaxed));
        see(self, LOAD(0, relaxed));
    }
}

static void passes(unsigned self)
{
    if (self == 0) {
        STORE(0, 1, relaxed);
        STORE(1, 1, release);
    } else {
        see(self, LOAD(1, acquire));
        see(self, LOAD(0, relaxed));
    }
}

/* Thread 1 loads x[1] and then x[0]. It can see 1 and then 0 only with relaxed order. */
TEST(only_release_and_acquire_make_all_earlier_writes_visible)
{
    outcomes_of("passes relaxed", 2, passes_relaxed, 0);
    CHECK(outcome_count == 3);
    outcomes_of("passes relaxed", 2, passes_relaxed, 2);
    CHECK(outcome_count == 4);
    outcomes_of("passes", 2, passes, 2);
    CHECK(outcome_count == 3);
}

static void passes_plain(unsigned self)
{
    if (self == 0) {
        shared.plain = 1;
        STORE(1, 1, release);
    } else if (LOAD(1, acquire) == 1) {
        see(self, (uint32_t)shared.plain);
    }
}

static void passes_plain_relaxed(unsigned self)
{
    if (self == 0) {
        shared.plain = 1;
        STORE(1, 1, relaxed);
    } else if (LOAD(1, acquire) == 1) {
        see(self, (uint32_t)shared.plain);
    }
}

/* If thread C reads both additions, C must see A's write. A's release reaches C through B's
 * read-modify-write, although B releases nothing. */
static void passes_through(unsigned self)
{
    if (self == 0) {
        shared.plain = 1;
        atomic_fetch_add_explicit(&shared.x[1], 1, memory_order_release);
    } else if (self == 1) {
        atomic_fetch_add_explicit(&shared.x[1], 2, memory_order_relaxed);
    } else if (LOAD(1, acquire) == 3) {
        see(self, (uint32_t)shared.plain);
    }
}

TEST(an_unordered_plain_access_is_a_race)
{
    CHECK(!outcomes_of("passes plain", 2, passes_plain, 1).failed);
    CHECK(outcomes_of("passes plain relaxed", 2, passes_plain_relaxed, 0).failed);
    CHECK(!outcomes_of("passes through", 3, passes_through, 1).failed);
}

static void counts(unsigned self)
{
    lock_take(&shared.lock[0]);
    see(self, (uint32_t)shared.plain);
    shared.plain++;
    lock_drop(&shared.lock[0]);
}

static void takes_crosswise(unsigned self)
{
    lock_take(&shared.lock[self]);
    lock_take(&shared.lock[1 - self]);
    lock_drop(&shared.lock[1 - self]);
    lock_drop(&shared.lock[self]);
}

/* The three threads see 0, 1 and 2, in one of six orders. */
TEST(locks_exclude_and_deadlocks_are_found)
{
    CHECK(!outcomes_of("counts", 3, counts, 0).failed);
    CHECK(outcome_count == 6);
    CHECK(outcomes_of("takes crosswise", 2, takes_crosswise, 0).failed);
}

static void reads_twice(unsigned self)
{
    if (self == 0) {
        for (uint32_t i = 1; i <= 3; i++)
            STORE(0, i, relaxed);
        return;
    }
    uint32_t first = LOAD(0, relaxed);
    if (LOAD(0, relaxed) < first)
        model_checker_fail("a thread loaded an older value after a newer one");
    see(self, first);
}

static void independent_reads(unsigned self)
{
    if (self < 2) {
        STORE(self, 1, release);
        return;
    }
    see(self, LOAD(self - 2, acquire));
    see(self, LOAD(3 - self, acquire));
}

/* The first load of x[0] returns 0, 1, 2 or 3. The four independent loads have 16 outcomes. In one
 * of them the two readers see the stores in opposite orders, which no interleaving allows. */
TEST(one_object_never_goes_back_and_two_objects_have_no_common_order)
{
    CHECK(!outcomes_of("reads twice", 2, reads_twice, 2).failed);
    CHECK(outcome_count == 4);
    outcomes_of("independent reads", 4, independent_reads, 0);
    CHECK(outcome_count == 15);
    outcomes_of("independent reads", 4, independent_reads, 4);
    CHECK(outcome_count == 16);
}

static void stops(unsigned self)
{
    if (self == 1) {
        model_checker_stop_others();
        see(self, LOAD(0, relaxed));
        return;
    }
    for (uint32_t i = 1; i <= 5; i++)
        STORE(0, i, relaxed);
}

/* The last store before the stop is one of five, or there is none. */
TEST(the_other_threads_are_stopped_at_every_possible_step)
{
    CHECK(!outcomes_of("stops", 2, stops, 0).failed);
    CHECK(outcome_count == 6);
}

static void unordered_stores(unsigned self)
{
    STORE(0, self, relaxed);
}

TEST(two_unordered_stores_are_reported)
{
    CHECK(outcomes_of("unordered stores", 2, unordered_stores, 0).failed);
}

/* --- random programs -------------------------------------------------------------------------- */

enum { OPERATIONS = 4 };
static struct {
    unsigned count;
    struct {
        uint8_t kind;
        uint8_t object;
    } operations[OPERATIONS];
} programs[MODEL_CHECKER_THREADS_MAX];

static void run_program(unsigned self)
{
    for (unsigned i = 0; i < programs[self].count; i++) {
        unsigned object = programs[self].operations[i].object;
        uint32_t expected;
        switch (programs[self].operations[i].kind) {
        case 0:
            see(self, LOAD(object, acquire));
            break;
        case 1:
            see(self, LOAD(object, relaxed));
            break;
        case 2:
            STORE(self, i + 1, release); /* only this thread stores to x[self] */
            break;
        case 3:
            see(self, atomic_fetch_add_explicit(&shared.x[3], self + 1, memory_order_acq_rel));
            break;
        case 4:
            expected = 0;
            atomic_compare_exchange_strong_explicit(&shared.x[3], &expected, self + 10,
                                                    memory_order_release, memory_order_relaxed);
            see(self, expected);
            break;
        case 5:
            lock_take(&shared.lock[0]);
            see(self, LOAD(object, relaxed));
            lock_drop(&shared.lock[0]);
            break;
        default:
            if (self == 0) { /* as in fork: no thread is stopped inside the lock */
                lock_take(&shared.lock[0]);
                model_checker_stop_others();
                lock_drop(&shared.lock[0]);
            }
        }
    }
}

/* The reduction leaves out executions. The remaining executions must have all outcomes that the
 * executions of every order have. */
TEST(random_programs_have_the_outcomes_of_every_order)
{
    static uint64_t expected[OUTCOMES];
    const char *seed = getenv("CAIRN_SEED");
    struct random random = random_of(seed == NULL ? 1 : strtoull(seed, NULL, 0));
    uint64_t reduced = 0, all = 0;
    for (unsigned round = 0; round < 400; round++) {
        unsigned threads = 2 + (unsigned)random_below(&random, 2);
        for (unsigned t = 0; t < threads; t++) {
            programs[t].count =
                1 + (unsigned)random_below(&random, threads == 2 ? OPERATIONS : OPERATIONS - 1);
            for (unsigned i = 0; i < programs[t].count; i++) {
                programs[t].operations[i].kind =
                    (uint8_t)random_below(&random, round % 2 == 0 ? 6 : 7);
                programs[t].operations[i].object = (uint8_t)random_below(&random, 4);
            }
        }
        for (unsigned stale = 0; stale <= 8; stale += 8) {
            struct model_checker_plan plan =
                plan_of("a random program", threads, run_program, stale);
            plan.every_order = true;
            struct model_checker_result every = model_checker_explore(&plan);
            unsigned count = outcome_count;
            memcpy(expected, outcomes, count * sizeof outcomes[0]);
            plan = plan_of("a random program", threads, run_program, stale);
            struct model_checker_result some = model_checker_explore(&plan);
            CHECK(!every.failed && every.exhausted && !some.failed && some.exhausted);
            CHECK(some.executions <= every.executions);
            CHECK(outcome_count == count &&
                  memcmp(expected, outcomes, count * sizeof outcomes[0]) == 0);
            reduced += some.executions;
            all += every.executions;
            if (test_failed) {
                fprintf(stderr, "round %u, stale %u: %u outcomes, but all orders have %u\n", round,
                        stale, outcome_count, count);
                return;
            }
        }
    }
    printf("  random programs: %llu executions instead of %llu\n", (unsigned long long)reduced,
           (unsigned long long)all);
}

int main(int argc, char **argv)
{
    memory_track(&shared, sizeof shared);
    return test_main(argc, argv);
}
