/* Tests of the search for a cache line that several threads share. */
#include "probe/line_watch.h"

#include "test.h"

enum { WATCHED = 16, LINE = 64 };

static struct layout_watches counts;

static void begin(void)
{
    static bool begun;
    if (begun)
        return;
    begun = true;
    line_watch_begin(&counts, 1);
    for (uint32_t number = 1; number <= WATCHED + 3; number++)
        line_watch_thread_begins(&(struct thread_state){.number = number});
}

/* Returns the number of shared lines if blocks of 16 bytes of these threads lie on one line. */
static uint64_t shared_by(const uint16_t *threads, size_t blocks)
{
    struct watched_line drawn;
    struct line_search search = {.drawn = &drawn};
    begin();
    for (size_t i = 0; i < blocks; i++)
        line_search_block(&search, LINE * LINE + 16 * i, 16, threads[i]);
    line_search_end(&search);
    return search.seen;
}

TEST(a_line_with_blocks_of_two_watched_threads_is_shared)
{
    CHECK(shared_by((const uint16_t[]){1, 2}, 2) == 1);
    CHECK(shared_by((const uint16_t[]){1, 1, 1, WATCHED}, 4) == 1);
    CHECK(shared_by((const uint16_t[]){1, 1}, 2) == 0);
}

/* Once, such a line was watched. No write of the unwatched thread was seen, so the line counted as
 * not confirmed. */
TEST(a_line_that_only_one_watched_thread_shares_with_unwatched_ones_is_not_shared)
{
    CHECK(shared_by((const uint16_t[]){1, WATCHED + 1}, 2) == 0);
    CHECK(shared_by((const uint16_t[]){WATCHED + 2, 1, WATCHED + 1}, 3) == 0);
    CHECK(shared_by((const uint16_t[]){WATCHED + 1, WATCHED + 2}, 2) == 0);
    CHECK(shared_by((const uint16_t[]){1, WATCHED + 1, 2}, 3) == 1);
}

/* The blocks of a thread that has ended can belong to any other thread. */
TEST(blocks_of_an_ended_thread_count)
{
    begin();
    CHECK(shared_by((const uint16_t[]){1, WATCHED + 3}, 2) == 0);
    line_watch_thread_ends(&(struct thread_state){.number = WATCHED + 3});
    CHECK(shared_by((const uint16_t[]){1, WATCHED + 3}, 2) == 1);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
