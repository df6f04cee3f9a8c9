/* probe_live.c - tests when the probe stops counting live bytes, and that the file says so. */
#include "probe/live.h"

#include "probe/watched.h"
#include "test.h"

#include <sys/resource.h>

static struct profile_head head;
static struct thread_state me;

/* Begins to count in this way, with an empty file. */
static void begin(enum live_way way)
{
    head = (struct profile_head){.threads_live = 1};
    me = (struct thread_state){.number = 1};
    session.head = &head;
    live_way = (uint8_t)way;
}

/* Runs first, because an earlier test would leave memory for further balances. The limit on
 * addresses makes every new mapping fail. */
TEST(without_memory_for_a_balance_live_bytes_are_estimated)
{
    struct rlimit before, none;
    begin(LIVE_BY_CALL);
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_AS, &none) == 0);
    head.live_way = LIVE_BY_CALL; /* another thread has begun before */
    live_thread_begin(&me);
    REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(me.live == NULL && live_way == LIVE_ESTIMATED);
    CHECK(head.live_way == LIVE_ESTIMATED);
}

TEST(the_file_says_how_live_bytes_are_counted)
{
    begin(LIVE_BY_CALL);
    live_thread_begin(&me);
    CHECK(me.live != NULL && head.live_way == LIVE_BY_CALL);
    live_thread_end(&me);
    CHECK(me.live == NULL && head.live_way == LIVE_BY_CALL);
}

/* The size in front of a block includes 8 bytes for itself, and its lowest three bits are flags. A
 * block with a mapping of its own has 16 bytes less than this size. */
TEST(a_wrong_size_in_front_of_a_block_ends_the_counting)
{
    size_t words[] = {0, 112 | 7, 0};
    const void *block = &words[2];
    const size_t wrong[] = {0, 88, 95, 105, 112, SIZE_MAX};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        begin(LIVE_BY_HEADER);
        live_thread_begin(&me);
        live_verify(block, 104);
        live_verify(block, 96);
        CHECK(live_way == LIVE_BY_HEADER && head.live_way == LIVE_BY_HEADER);
        live_verify(block, wrong[i]);
        CHECK(live_way == LIVE_ESTIMATED && head.live_way == LIVE_ESTIMATED);
        live_thread_end(&me);
    }
}

/* The process has no file after a fork until the child makes one. */
TEST(counting_ends_without_a_file_too)
{
    size_t words[] = {0, 112, 0};
    begin(LIVE_BY_HEADER);
    session.head = NULL;
    live_verify(&words[2], 24);
    CHECK(live_way == LIVE_ESTIMATED && head.live_way == 0);
}

TEST(the_highest_estimate_is_noted_with_its_error)
{
    struct random random = random_of(1);
    const void *block = (const void *)(uintptr_t)0x10000040;
    begin(LIVE_ESTIMATED);
    watched_add(block, (struct watched){.bytes = 5000, .usable = 5008, .thread = 1, .weight = 64},
                &random);
    live_estimate();
    uint64_t most = 64 * 5000;
    CHECK(head.live_looks == 1 && head.live_noted_bytes == most && head.live_noted_error > 0);
    struct watched taken;
    REQUIRE(watched_take(block, &taken));
    live_estimate();
    CHECK(head.live_looks == 2 && head.live_noted_bytes == most);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
