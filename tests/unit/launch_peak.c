#define _GNU_SOURCE 1

#include "launch/pace.h"
#include "launch/peak.h"

#include "test.h"

#define MIB UINT64_C(1048576)

static struct peak_reading reading(uint64_t anon, uint64_t other, uint64_t charged_max)
{
    return (struct peak_reading){
        .anon_bytes = anon,
        .other_bytes = other,
        .charged_max_bytes = charged_max,
        .charged = PEAK_CHARGED_INTERVAL,
    };
}

static void add(struct peak *peak, struct peak_reading one)
{
    peak_add(peak, &one);
    peak_check(peak);
}

/* Returns a copy of the peak in which the readings end here. */
static struct peak ended(struct peak peak)
{
    peak_end(&peak);
    peak_check(&peak);
    return peak;
}

TEST(peak_is_the_highest_of_anonymous_and_shared_memory)
{
    struct peak peak = peak_begin(0);
    add(&peak, (struct peak_reading){.anon_bytes = 5, .shmem_bytes = 1});
    add(&peak, (struct peak_reading){.anon_bytes = 7, .shmem_bytes = 3});
    add(&peak, (struct peak_reading){.anon_bytes = 8});
    CHECK(peak.peak_bytes == 10);
    CHECK(peak.less_lazy_bytes == 10);
    CHECK(peak.lazy_peak_bytes == 0);
    CHECK(peak.count == 3);
}

/* The peak, the peak without lazily freed memory, and the peak of lazily freed memory may come from
 * three different readings. */
TEST(peak_less_lazy_has_a_reading_of_its_own)
{
    struct peak peak = peak_begin(0);
    add(&peak, (struct peak_reading){.anon_bytes = 100, .lazy_bytes = 60});
    add(&peak, (struct peak_reading){.anon_bytes = 70, .lazy_bytes = 0});
    add(&peak, (struct peak_reading){.anon_bytes = 90, .lazy_bytes = 80});
    CHECK(peak.peak_bytes == 100);
    CHECK(peak.less_lazy_bytes == 70);
    CHECK(peak.lazy_peak_bytes == 80);
}

/* The charged memory rose to 515 MiB between the readings. At most 5 MiB of it were not memory of
 * the program. */
TEST(peak_sees_a_burst_between_two_readings)
{
    struct peak peak = peak_begin(MIB);
    add(&peak, reading(10 * MIB, 5 * MIB, 15 * MIB));
    add(&peak, reading(10 * MIB, 5 * MIB, 515 * MIB));
    peak = ended(peak);
    CHECK(peak.peak_bytes == 510 * MIB);
    CHECK(peak.less_lazy_bytes == 510 * MIB);
    CHECK(peak.charged_peak_bytes == 515 * MIB);
}

/* Reading a file of 1 GiB uses no memory of the program, even if its page cache grows between the
 * readings. */
TEST(peak_does_not_count_page_cache)
{
    struct peak peak = peak_begin(MIB);
    add(&peak, reading(10 * MIB, 5 * MIB, 15 * MIB));
    add(&peak, reading(10 * MIB, 590 * MIB, 600 * MIB));
    add(&peak, reading(10 * MIB, 1024 * MIB, 1034 * MIB));
    add(&peak, reading(0, 1024 * MIB, 1034 * MIB));
    CHECK(ended(peak).peak_bytes == 10 * MIB);
}

/* The page cache of the machine is dropped while a file is read. The kernel reports the drop only
 * after the drop is complete. */
TEST(peak_does_not_count_page_cache_that_was_dropped)
{
    for (int counted = 0; counted <= 1; counted++) {
        struct peak peak = peak_begin(MIB);
        add(&peak, reading(10 * MIB, 1010 * MIB, 1020 * MIB));
        struct peak_reading after = reading(10 * MIB, 1010 * MIB, 1036 * MIB);
        after.cache_taken = (uint64_t)counted;
        add(&peak, after);
        after = reading(10 * MIB, 1010 * MIB, 1020 * MIB);
        after.cache_taken = 1;
        add(&peak, after);
        CHECK(ended(peak).peak_bytes == 10 * MIB);
        add(&peak, after);
        after.charged_max_bytes += 500 * MIB;
        add(&peak, after);
        CHECK(ended(peak).peak_bytes == 510 * MIB);
    }
}

/* A page that is entering the page cache is charged to the cgroup before it counts as page cache. A
 * huge page makes this gap 2 MiB large. */
TEST(peak_ignores_a_gap_smaller_than_the_change_of_the_cache)
{
    struct peak peak = peak_begin(MIB);
    add(&peak, reading(10 * MIB, 100 * MIB, 110 * MIB));
    add(&peak, reading(10 * MIB, 140 * MIB, 153 * MIB));
    CHECK(ended(peak).peak_bytes == 10 * MIB);
    add(&peak, reading(10 * MIB, 180 * MIB, 480 * MIB));
    CHECK(ended(peak).peak_bytes == 300 * MIB);
}

/* The kernel counts pages in batches, and a batch can look like a small burst. */
TEST(peak_ignores_a_gap_below_the_slack)
{
    struct peak peak = peak_begin(MIB);
    add(&peak, reading(2 * MIB, 1 * MIB, 3 * MIB));
    add(&peak, reading(2 * MIB, 1 * MIB, 4 * MIB));
    CHECK(ended(peak).peak_bytes == 2 * MIB);
}

TEST(peak_counts_lazily_freed_memory_around_a_burst_as_such)
{
    struct peak peak = peak_begin(MIB);
    struct peak_reading before = reading(100 * MIB, 0 * MIB, 100 * MIB);
    before.lazy_bytes = 90 * MIB;
    add(&peak, before);
    add(&peak, reading(10 * MIB, 0 * MIB, 300 * MIB));
    peak = ended(peak);
    CHECK(peak.peak_bytes == 300 * MIB);
    CHECK(peak.less_lazy_bytes == 210 * MIB);
    CHECK(peak.lazy_peak_bytes == 90 * MIB);
}

TEST(peak_over_a_lifetime_is_applied_at_the_end)
{
    struct peak peak = peak_begin(MIB);
    struct peak_reading one = reading(10 * MIB, 5 * MIB, 515 * MIB);
    one.charged = PEAK_CHARGED_LIFETIME;
    add(&peak, one);
    /* The 100 MiB of page cache may have existed when the charged memory was highest, so they are
     * subtracted. */
    one.other_bytes = 100 * MIB;
    add(&peak, one);
    CHECK(peak.peak_bytes == 10 * MIB);
    peak_end(&peak);
    CHECK(peak.peak_bytes == 415 * MIB);
}

TEST(peak_is_at_least_the_bound_of_another_source)
{
    struct peak peak = peak_begin(MIB);
    add(&peak, (struct peak_reading){.anon_bytes = 10, .at_least_bytes = 500});
    CHECK(peak.peak_bytes == 500);
    CHECK(peak.less_lazy_bytes == 500);
}

/* The last reading is always taken after the program has ended. So a single reading shows a peak
 * only if more memory was charged to the cgroup than the slack. */
TEST(peak_of_a_program_without_a_reading_alive_is_unknown)
{
    struct peak peak = peak_begin(MIB);
    CHECK(!peak_is_known(&peak));
    add(&peak, reading(4096, 0, MIB));
    CHECK(!peak_is_known(&peak));
    add(&peak, reading(4096, 0, MIB));
    CHECK(peak_is_known(&peak));

    struct peak burst = peak_begin(MIB);
    add(&burst, reading(4096, 0, 500 * MIB));
    burst = ended(burst);
    CHECK(peak_is_known(&burst));
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Simulates programs whose anonymous memory varies at random and whose page cache only grows, with
 * readings at random times. The computed peak is never above the true peak and never below any
 * reading. Without page cache it equals the true peak. */
TEST(peak_is_between_the_highest_reading_and_the_truth)
{
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15);
        bool cached = seed % 2 == 0;
        struct peak peak = peak_begin(0);
        uint64_t truth = 0, read = 0, cache = 0, anon = 0, interval_max = 0;
        for (int step = 0; step < 200; step++) {
            anon = next_random(&state) % 1000;
            if (cached)
                cache += next_random(&state) % 10;
            truth = anon > truth ? anon : truth;
            interval_max = anon + cache > interval_max ? anon + cache : interval_max;
            if (next_random(&state) % 8 == 0 || step == 199) {
                add(&peak, reading(anon, cache, interval_max));
                read = anon > read ? anon : read;
                interval_max = anon + cache;
            }
        }
        peak = ended(peak);
        if (peak.peak_bytes > truth || peak.peak_bytes < read ||
            (!cached && peak.peak_bytes != truth))
            fprintf(stderr, "failed with seed %llu\n", (unsigned long long)seed);
        REQUIRE(peak.peak_bytes <= truth);
        REQUIRE(peak.peak_bytes >= read);
        REQUIRE(cached || peak.peak_bytes == truth);
    }
}

static const struct pace millisecond_pace = {
    .min_ns = NS_PER_MS, .max_ns = 100 * NS_PER_MS, .divisor = 250};

TEST(pace_doubles_at_the_beginning)
{
    struct pace pace = millisecond_pace;
    pace_begin(&pace, 0);
    for (uint64_t ms = 1; ms <= 8; ms *= 2) {
        CHECK(pace.due_ns == ms * NS_PER_MS);
        pace_spend(&pace, pace.due_ns, 50 * NS_PER_US);
    }
}

/* In the long run the repeated action takes no more CPU time than its budget, whatever a single
 * repetition costs. */
TEST(pace_stays_within_its_budget)
{
    for (uint64_t cost_us = 1; cost_us <= 400; cost_us++) {
        struct pace pace = millisecond_pace;
        uint64_t now_ns = 0;
        pace_begin(&pace, now_ns);
        while (now_ns < 100 * NS_PER_S) {
            CHECK(pace.due_ns >= now_ns + pace.min_ns);
            CHECK(pace.due_ns <= now_ns + pace.max_ns);
            now_ns = pace.due_ns;
            pace_spend(&pace, now_ns, cost_us * NS_PER_US);
        }
        CHECK(pace.cpu_ns <= now_ns / pace.divisor + PACE_EARLY_CPU_NS + cost_us * NS_PER_US);
    }
}

TEST(pace_never_exceeds_the_longest_spacing)
{
    struct pace pace = millisecond_pace;
    pace_begin(&pace, 0);
    pace_spend(&pace, NS_PER_S, NS_PER_S);
    CHECK(pace.due_ns == NS_PER_S + pace.max_ns);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
