/* common.c - tests the code that all workloads share: block contents that reveal damage,
 * percentiles, sizes and lifetimes. */
#include "common/contents.h"
#include "common/distribution.h"
#include "common/recorder.h"

#include "test.h"

#include <math.h>
#include <stdlib.h>

static _Alignas(16) unsigned char space[4096];

TEST(written_contents_have_the_expected_sum_at_every_size)
{
    for (size_t size = 0; size <= 600; size++) {
        uint64_t key = random_mix(size);
        contents_write(space, 0, size, key);
        CHECK(contents_sum(space, size) == contents_expected(size, key));
    }
}

TEST(contents_grow_and_shrink_in_place)
{
    for (size_t from = 0; from <= 100; from++) {
        for (size_t size = 0; size <= 100; size++) {
            contents_write(space, 0, from, 77);
            contents_write(space, from < size ? from : size, size, 77);
            CHECK(contents_sum(space, size) == contents_expected(size, 77));
        }
    }
}

TEST(any_changed_byte_changes_the_sum)
{
    for (size_t size = 1; size <= 200; size++) {
        contents_write(space, 0, size, random_mix(size));
        for (size_t i = 0; i < size; i++) {
            space[i] ^= 0x10;
            CHECK(contents_sum(space, size) != contents_expected(size, random_mix(size)));
            space[i] ^= 0x10;
        }
    }
}

TEST(contents_are_not_written_beyond_the_block)
{
    for (size_t size = 0; size <= 100; size++) {
        memset(space, 0xaa, 128);
        contents_write(space, 0, size, 5);
        for (size_t i = size; i < 128; i++)
            CHECK(space[i] == 0xaa);
    }
}

TEST(contents_are_zero_only_if_every_byte_is)
{
    memset(space, 0, 100);
    for (size_t size = 0; size <= 100; size++)
        CHECK(contents_are_zero(space, size));
    for (size_t i = 0; i < 100; i++) {
        space[i] = 1;
        CHECK(!contents_are_zero(space, 100));
        CHECK(contents_are_zero(space, i));
        space[i] = 0;
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

TEST(percentiles_are_within_one_percent_of_the_sorted_values)
{
    enum { COUNT = 20001 };
    static struct recorder recorder;
    static double values[COUNT];
    struct random random = random_of(1, 0);
    for (int i = 0; i < COUNT; i++) {
        uint64_t ns = (uint64_t)exp2(2 + 38 * random_unit(&random)); /* 4 ns to 18 minutes */
        uint64_t operations = 1 + random_below(&random, 9);
        recorder_add(&recorder, ns, operations);
        values[i] = (double)ns / (double)operations;
    }
    qsort(values, COUNT, sizeof values[0], ascending);
    static const double parts[] = {0.01, 0.5, 0.95, 0.99};
    for (size_t i = 0; i < 4; i++) {
        double exact = values[(int)(parts[i] * COUNT)];
        double found = recorder_quantile(&recorder, parts[i]);
        CHECK(fabs(found - exact) <= 0.01 * exact + 0.02);
    }
    CHECK(recorder.batches == COUNT);
}

TEST(a_recorder_without_batches_returns_0)
{
    static struct recorder none;
    CHECK(recorder_quantile(&none, 0.5) == 0);
}

TEST(merged_recorders_hold_the_batches_of_both)
{
    static struct recorder one;
    static struct recorder two;
    recorder_add(&one, 100, 1);
    recorder_add(&two, 1000, 10);
    recorder_add(&two, 5000, 10);
    recorder_merge(&one, &two);
    CHECK(one.batches == 3 && one.operations == 21 && one.total_ns == 6100);
    CHECK(fabs(recorder_quantile(&one, 0.5) - 100) < 1);
    CHECK(fabs(recorder_quantile(&one, 1.0) - 500) < 4);
}

TEST(sizes_stay_within_their_bounds_and_reach_them)
{
    struct random random = random_of(1, 0);
    bool least = false;
    bool most = false;
    for (int i = 0; i < 200000; i++) {
        size_t size = size_uniform(&random, 10, 20);
        REQUIRE(size >= 10 && size <= 20);
        least |= size == 10;
        most |= size == 20;
        size = size_log_uniform(&random, 1, 1000);
        REQUIRE(size >= 1 && size <= 1000);
        size = size_log_uniform(&random, 7, 7);
        REQUIRE(size == 7);
        size = size_of_fleet(&random);
        REQUIRE(size >= 8 && size <= 256 << 10);
    }
    CHECK(least && most);
}

TEST(fleet_sizes_are_as_published)
{
    struct random random = random_of(2, 0);
    double below_1k = 0;
    double bytes = 0;
    double bytes_below_1k = 0;
    double bytes_above_8k = 0;
    enum { COUNT = 1000000 };
    for (int i = 0; i < COUNT; i++) {
        size_t size = size_of_fleet(&random);
        bytes += (double)size;
        below_1k += size < 1024;
        bytes_below_1k += size < 1024 ? (double)size : 0;
        bytes_above_8k += size > 8192 ? (double)size : 0;
    }
    CHECK(fabs(below_1k / COUNT - 0.98) < 0.005);
    CHECK(bytes_below_1k / bytes > 0.24 && bytes_below_1k / bytes < 0.36);
    CHECK(bytes_above_8k / bytes > 0.45 && bytes_above_8k / bytes < 0.57);
}

TEST(lifetimes_have_their_means)
{
    struct random random = random_of(3, 0);
    double sum = 0;
    double mixed = 0;
    enum { COUNT = 400000 };
    for (int i = 0; i < COUNT; i++) {
        uint64_t lifetime = lifetime_exponential(&random, 50);
        REQUIRE(lifetime >= 1);
        sum += (double)lifetime;
        mixed += (double)lifetime_generational(&random, 10, 1000, 10);
    }
    CHECK(fabs(sum / COUNT - 50.5) < 1);
    CHECK(fabs(mixed / COUNT - 109.5) < 4);
}

TEST(generators_of_one_seed_differ_by_stream)
{
    struct random one = random_of(1, 0);
    struct random two = random_of(1, 1);
    struct random again = random_of(1, 0);
    unsigned equal = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t value = random_next(&one);
        equal += value == random_next(&two);
        CHECK(value == random_next(&again));
    }
    CHECK(equal == 0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
