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

/* The next four tests must run before the tests that follow them. Those tests fill parts of the
 * table, and a part that was ever full thins its blocks. */

/* Each of 5,000 live blocks is watched with probability 1/16, and then stands for 16 blocks. The
 * mean over 400 tries of (error / standard error)^2 is 1, and has a standard deviation of 0.07, the
 * root of 2/400. The test allows four of these. */
TEST(the_standard_error_of_live_bytes_is_right)
{
    enum { TRIES = 400, BLOCKS = 5000, WEIGHT = 16 };
    struct random random = random_of(5);
    double sum = 0;
    for (int i = 0; i < TRIES; i++) {
        double live = 0;
        for (uint64_t j = 0; j < BLOCKS; j++) {
            uint64_t bytes = 16 + random_below(&random, 1000);
            struct watched watched = {.bytes = bytes, .usable = bytes, .weight = WEIGHT};
            live += (double)bytes;
            if (random_below(&random, WEIGHT) == 0)
                watched_add(address(j), watched, &random);
        }
        struct watched_live found = watched_live();
        double off = ((double)found.bytes - live) / (double)found.error;
        sum += off * off;
        CHECK(watched_bytes() == found.bytes);
        (void)take_all(BLOCKS);
    }
    CHECK(sum / TRIES > 0.7 && sum / TRIES < 1.3);
    CHECK(watched_live().error == 0);
}

/* Samples an allocation in a size class of `usable` bytes. The request is the whole size if `whole`
 * is true. Otherwise it is a random size above half of the class. */
static struct watched sampled(uint64_t usable, bool whole, struct random *random)
{
    uint64_t bytes = whole ? usable : usable / 2 + 1 + random_below(random, usable / 2);
    watched_sampled(bytes, usable, 256);
    return (struct watched){.bytes = bytes, .usable = usable, .weight = 256};
}

/* The requested share is the requested part of the usable bytes. From a single sampled block,
 * the share of the other blocks is not known. So the error must allow any share from 0 to 1. */
TEST(the_requested_share_of_a_single_sampled_block_has_a_wide_error)
{
    struct random random = random_of(5);
    watched_sampled(17, 32, 256);
    watched_add(address(0), (struct watched){.bytes = 17, .usable = 32, .weight = 256}, &random);
    CHECK(watched_samples() == 1);
    struct watched_requested found = watched_requested();
    CHECK(found.share + 2 * found.error >= 1 && found.share - 2 * found.error <= 0);
    CHECK(take_all(1) == 256);
}

/* 400 blocks were sampled, but only four of them are live. The mean requested share of each size
 * class is known from all 400, and the live blocks get this mean. It is nearer to the truth than
 * the share of four blocks, because the share of a single block has a standard deviation of
 * 0.14. */
TEST(the_requested_share_of_few_live_blocks_is_that_of_their_size_classes)
{
    enum { TRIES = 200, ALL = 400, LIVE = 4 };
    const double share = (48.5 + 96.5) / (64 + 128);
    double sum = 0;
    struct random random = random_of(6);
    for (int i = 0; i < TRIES; i++) {
        for (uint64_t j = 0; j < ALL; j++) {
            struct watched watched = sampled(j % 2 != 0 ? 64 : 128, false, &random);
            if (j < LIVE)
                watched_add(address(j), watched, &random);
        }
        struct watched_requested found = watched_requested();
        sum += (found.share - share) * (found.share - share);
        CHECK(found.error > 0 && found.error < 0.14);
        CHECK(take_all(LIVE) == LIVE * 256);
    }
    CHECK(sum / TRIES < 0.05 * 0.05);
}

/* The 1,000 live blocks request the whole size of their class. Most sampled blocks do not, and
 * these were freed. So the mean of all sampled blocks is lower than the share of the live ones. */
TEST(the_requested_share_of_many_live_blocks_is_their_own)
{
    enum { LIVE = 1000 };
    struct random random = random_of(7);
    for (uint64_t j = 0; j < 20 * LIVE; j++) {
        struct watched watched = sampled(256, j < LIVE, &random);
        if (j < LIVE)
            watched_add(address(j), watched, &random);
    }
    struct watched_requested found = watched_requested();
    CHECK(found.share == 1.0 && found.error < 0.01);
    CHECK(take_all(LIVE) == LIVE * 256);
}

TEST(most_unwatched_blocks_are_recognized_by_the_filter)
{
    struct random random = random_of(2);
    unsigned maybe = 0;
    for (uint64_t i = 0; i < 8000; i++)
        watched_add(address(i), (struct watched){.bytes = 10, .weight = 1}, &random);
    for (uint64_t i = 100000; i < 200000; i++)
        maybe += watched_maybe(address(i));
    /* The filter has 131,072 slots. 8,000 blocks fill at most 6.1 % of them, so about 6,100 of the
     * 100,000 other addresses may match. */
    CHECK(maybe < 8000);
    (void)take_all(8000);
    CHECK(watched_live().bytes == 0);
}

/* 200,000 blocks are 25 times the capacity of the table, 8,128 blocks. So most of them were dropped
 * at random, and the sums have a random error. The bounds allow about four standard deviations of
 * this error. */
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
