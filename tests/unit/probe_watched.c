/* probe_watched.c - tests that the sampled (watched) blocks are found again, and that thinning the
 * sample keeps it unbiased. */
#include "probe/watched.h"

#include "probe/futex_lock.h"
#include "record/profile.h"
#include "test.h"

#include <pthread.h>
#include <stdlib.h>

static const void *address(uint64_t i)
{
    return (const void *)(uintptr_t)(0x10000000 + 48 * i);
}

static uint64_t take_all(uint64_t count)
{
    uint64_t weight = 0;
    struct watched watched;
    for (uint64_t i = 0; i < count; i++)
        if (watched_take(address(i), &watched))
            weight += watched.weight;
    return weight;
}

TEST(a_block_is_watched_until_it_is_taken)
{
    struct random random = random_of(1);
    struct watched watched = {.ticks = 7, .bytes = 100, .usable = 112, .thread = 3, .weight = 64};
    CHECK(!watched_maybe(address(0)) && !watched_take(address(0), &watched));
    watched_add(address(0), watched, &random);
    CHECK(watched_maybe(address(0)));
    CHECK(watched_live().bytes == 6400 && watched_live().usable == 7168);
    struct watched taken = {0};
    REQUIRE(watched_take(address(0), &taken));
    CHECK(taken.ticks == 7 && taken.bytes == 100 && taken.thread == 3 && taken.weight == 64);
    CHECK(!watched_maybe(address(0)) && !watched_take(address(0), &taken));
    CHECK(watched_live().bytes == 0 && watched_live().usable == 0);
}

TEST(most_unwatched_blocks_are_recognized_by_the_filter)
{
    struct random random = random_of(2);
    unsigned maybe = 0;
    for (uint64_t i = 0; i < 8000; i++)
        watched_add(address(i), (struct watched){.bytes = 10, .weight = 1}, &random);
    for (uint64_t i = 100000; i < 200000; i++)
        maybe += watched_maybe(address(i));
    CHECK(maybe < 8000); /* the filter has 131,072 slots for 8,000 blocks */
    (void)take_all(8000);
    CHECK(watched_live().bytes == 0);
}

/* 200,000 blocks are twenty times the capacity. The bounds are four standard deviations of a sum
 * over a sample of 8,192 blocks that was halved at random. */
TEST(a_thinned_sample_is_still_unbiased)
{
    enum { BLOCKS = 200000 };
    struct random random = random_of(3);
    for (uint64_t i = 0; i < BLOCKS; i++)
        watched_add(
            address(i),
            (struct watched){.bytes = 16 + i % 100, .usable = 2 * (16 + i % 100), .weight = 1},
            &random);
    double expected = 0;
    for (uint64_t i = 0; i < BLOCKS; i++)
        expected += 16 + (double)(i % 100);
    double live = (double)watched_live().bytes;
    CHECK(live > 0.93 * expected && live < 1.07 * expected);
    CHECK(watched_live().usable == 2 * watched_live().bytes);
    double weight = (double)take_all(BLOCKS);
    CHECK(weight > 0.95 * BLOCKS && weight < 1.05 * BLOCKS);
    CHECK(watched_live().bytes == 0);
}

TEST(large_blocks_are_kept_while_small_ones_are_thinned)
{
    struct random random = random_of(4);
    enum { LARGE = 20, BYTES = 10 << 20 };
    for (uint64_t i = 0; i < LARGE; i++)
        watched_add(address(1000000 + i), (struct watched){.bytes = BYTES, .weight = 1}, &random);
    for (uint64_t i = 0; i < 100000; i++)
        watched_add(address(i), (struct watched){.bytes = 16, .weight = 1}, &random);
    struct watched watched;
    for (uint64_t i = 0; i < LARGE; i++)
        CHECK(watched_take(address(1000000 + i), &watched) && watched.weight == 1);
    (void)take_all(100000);
}

static void *work(void *argument)
{
    uint64_t first = (uintptr_t)argument;
    struct random random = random_of(first);
    struct watched watched;
    for (uint64_t round = 0; round < 50; round++) {
        for (uint64_t i = first; i < first + 500; i++)
            watched_add(address(i), (struct watched){.bytes = i, .weight = 1}, &random);
        for (uint64_t i = first; i < first + 500; i++)
            if (watched_take(address(i), &watched) && watched.bytes != i)
                return "a taken block has the data of another block";
    }
    return NULL;
}

TEST(threads_do_not_disturb_each_other)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < COUNT_OF(threads); i++)
        REQUIRE(pthread_create(&threads[i], NULL, work, (void *)(i * 1000)) == 0);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        void *problem = NULL;
        pthread_join(threads[i], &problem);
        CHECK(problem == NULL);
    }
    CHECK(watched_live().bytes == 0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
