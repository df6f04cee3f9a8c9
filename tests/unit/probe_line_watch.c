/* Tests of the search for a cache line that several threads share, and of its watches. */
#include "probe/line_watch.h"

#include "base/clock.h"
#include "base/ticks.h"
#include "probe/session.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

enum { WATCHED = 16, LINE = 64 };

static struct layout_watches counts;
static uint64_t tests_began; /* in ticks */

static void begin(void)
{
    static bool begun;
    if (begun)
        return;
    begun = true;
    tests_began = ticks_now();
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

/* The line that the next watch takes. */
static struct watched_line next_line;

static bool find(struct watched_line *found)
{
    *found = next_line;
    return true;
}

/* Watches a line with one word for at least `us` microseconds. Returns false if the kernel refuses
 * breakpoints. */
static bool watch(uintptr_t address, unsigned us)
{
    next_line = (struct watched_line){.address = address, .block_bytes = 16, .words = 1};
    line_watch_step(find);
    usleep(us);
    line_watch_step(find);
    return counts.refused_errno == 0;
}

/* Begins the process anew, with one thread whose writes are counted: a thread has breakpoints for
 * one line only. */
static void begin_process(struct profile_head *head)
{
    static bool begun;
    begin();
    session.head = head;
    head->ticks_begin = ticks_now();
    head->ns_begin = clock_now_ns();
    usleep(1000);
    for (uint32_t number = 2; number <= WATCHED && !begun; number++)
        line_watch_thread_ends(&(struct thread_state){.number = number});
    begun = true;
}

/* A program may share only one line. The profile then said: two threads wrote to 16 of 16 lines. */
TEST(a_line_that_was_watched_is_not_watched_again)
{
    static struct profile_head head;
    void *line = aligned_alloc(LINE, LINE);
    struct watched_line drawn;
    struct line_search search = {.drawn = &drawn};
    begin_process(&head);
    REQUIRE(line != NULL);
    for (int i = 0; i < 5 && counts.lines == 0; i++)
        if (!watch((uintptr_t)line, 0))
            SKIP("the kernel refuses breakpoints");
    REQUIRE(counts.lines == 1);
    for (uintptr_t i = 0; i < 4; i++)
        line_search_block(&search, (uintptr_t)line + 32 * i, 32, (uint16_t)(1 + i % 2));
    line_search_end(&search);
    CHECK(search.seen == 1 && drawn.address == (uintptr_t)line + LINE);
    free(line);
}

/* A watch that its process ends late once counted as none, so another one began at once. */
TEST(late_watches_have_a_budget_and_a_limit)
{
    enum { LATE_US = 25000, PART_OF_LIFE = 8, MOST = LAYOUT_WATCHES };
    static struct profile_head head;
    static uint64_t word;
    begin_process(&head);
    counts.lines = 0;
    counts.late = 4;
    if (!watch((uintptr_t)&word & ~(uintptr_t)(LINE - 1), LATE_US))
        SKIP("the kernel refuses breakpoints");
    CHECK(counts.late == 5 && counts.lines == 0);
    uint64_t now = ticks_now();
    double rate = (double)(now - head.ticks_begin) / (double)(clock_now_ns() - head.ns_begin);
    double next_ns = (double)(line_watch_next - head.ticks_begin) / rate;
    CHECK(next_ns > 1e3 * LATE_US * PART_OF_LIFE * 0.9);
    /* All late watches together cannot have lasted for longer than the tests so far. */
    CHECK(next_ns < (double)(now - tests_began) / rate * PART_OF_LIFE * 1.1 + 1e6);
    counts.late = MOST - 1;
    CHECK(watch((uintptr_t)&word & ~(uintptr_t)(LINE - 1), LATE_US));
    CHECK(counts.late == MOST && line_watch_next == UINT64_MAX);
}

static bool find_none(struct watched_line *found)
{
    (void)found;
    return false;
}

/* The time between a search and the next one, in ticks. */
struct wait {
    uint64_t least, most;
};

/* Searches in vain. The search happens at a time between the two readings of the clock. */
static struct wait search_in_vain(void)
{
    uint64_t before = ticks_now();
    line_watch_step(find_none);
    uint64_t after = ticks_now(), next = line_watch_next;
    return (struct wait){.least = next > after ? next - after : 0, .most = next - before};
}

/* A program that shares fewer lines than can be watched was once searched every 20 ms for all its
 * life, because lines that were watched are not found again. */
TEST(searches_in_vain_become_rare)
{
    enum { MOST_MS = 2000 };
    static struct profile_head head;
    static uint64_t word;
    begin_process(&head);
    counts.lines = counts.late = 0;
    (void)watch((uintptr_t)&word & ~(uintptr_t)(LINE - 1), 0);
    const struct wait first = search_in_vain(), second = search_in_vain();
    CHECK(second.most > first.least + first.least / 2);
    struct wait last = second;
    for (int i = 0; i < 100; i++)
        last = search_in_vain();
    CHECK(last.most > 10 * first.least && last.most > second.least);
    double rate =
        (double)(ticks_now() - head.ticks_begin) / (double)(clock_now_ns() - head.ns_begin);
    CHECK((double)last.least < MOST_MS * 1e6 * rate);
    (void)watch((uintptr_t)&word & ~(uintptr_t)(LINE - 1), 0); /* a line was found again */
    CHECK(search_in_vain().least < last.most / 10);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
