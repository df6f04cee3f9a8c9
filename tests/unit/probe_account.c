/* probe_account.c - tests what a timed free adds to the file. */
#include "probe/account.h"

#include "probe/direct_syscall.h"
#include "test.h"
#include "trapped_calls.h"

#include <sys/mman.h>

enum { GAP = 256, TRIES = 1000 };

static struct profile_head head;
static struct profile_samples samples;
static struct profile_thread counts;
static struct thread_state me;

/* Begins the timed free of a block of `bytes` bytes that this thread allocated, with an empty
 * file. */
static void begin_free(uint64_t bytes, uint32_t weight)
{
    memset(&samples, 0, sizeof samples);
    head = (struct profile_head){.gap = GAP};
    me = (struct thread_state){.number = 1, .counts = &counts, .faults_wanted = true};
    me.watched = (struct watched){.bytes = bytes, .weight = weight, .thread = 1};
    session.head = &head;
    session.samples = &samples;
    session.gap = GAP;
    atomic_store(&session.next_moment_ticks, UINT64_MAX);
    account_time(&me, profile_group(bytes));
}

static const struct profile_times *local(enum profile_group group)
{
    return &samples.times[PROFILE_FREE_LOCAL + profile_cell(group, PROFILE_SERIAL)];
}

/* Times a free without its page faults. Repeats it until the thread keeps its processor, because
 * the copies do not count otherwise. Returns false if it never did. */
static bool free_undisturbed(uint64_t bytes, uint32_t weight, bool alone)
{
    for (int i = 0; i < TRIES; i++) {
        begin_free(bytes, weight);
        me.faults_wanted = false;
        me.alone = alone;
        account_leave_release_slowly(&me);
        if (local(profile_group(bytes))->switched == 0)
            return true;
    }
    return false;
}

/* Each free once counted the same, so those from the time with the most live blocks counted too
 * little. */
TEST(a_free_counts_once_for_each_of_its_copies)
{
    begin_free(100, 8 * GAP);
    account_leave_release_slowly(&me);
    CHECK(local(PROFILE_SMALL)->fault_operations == 8 && local(PROFILE_SMALL)->count == 0);
    CHECK(head.freed_copies[PROFILE_LOCAL][0] == 8 && head.freed_squares[PROFILE_LOCAL][0] == 64);
    CHECK(samples.freed[PROFILE_SMALL] == UINT64_C(8) * GAP);
    REQUIRE(free_undisturbed(100, 8 * GAP, false));
    const struct profile_times *times = local(PROFILE_SMALL);
    CHECK(times->count == 8 && times->alone == 0);
    CHECK(times->buckets[profile_bucket(times->max_ticks)] == 8);
    CHECK(times->ticks == 8 * times->max_ticks);
    REQUIRE(free_undisturbed(100, 8 * GAP, true));
    CHECK(times->alone == 8 && times->count == 0 && times->alone_ticks % 8 == 0);
    REQUIRE(free_undisturbed(1 << 20, 4, false));
    CHECK(local(PROFILE_LARGE)->count == 4);
}

/* It once began again at 0, and a quantile of the times was then that of the other buckets. */
TEST(a_full_bucket_stays_full)
{
    struct profile_times *times =
        &samples.times[PROFILE_FREE_LOCAL + profile_cell(PROFILE_SMALL, PROFILE_SERIAL)];
    int i = 0;
    do {
        begin_free(100, 8 * GAP);
        me.faults_wanted = false;
        for (size_t bucket = 0; bucket < PROFILE_BUCKETS; bucket++)
            times->buckets[bucket] = UINT32_MAX - 3;
        account_leave_release_slowly(&me);
    } while (times->count == 0 && ++i < TRIES);
    REQUIRE(times->count == 8);
    CHECK(times->buckets[profile_bucket(times->max_ticks)] == UINT32_MAX);
}

TEST(a_free_by_another_thread_has_its_copies_in_a_row_of_its_own)
{
    begin_free(100, 8 * GAP);
    me.watched.thread = 2;
    account_leave_release_slowly(&me);
    const struct profile_times *remote = &samples.times[PROFILE_FREE_REMOTE];
    CHECK(remote->fault_operations == 8 && local(PROFILE_SMALL)->fault_operations == 0);
    CHECK(head.freed_copies[PROFILE_REMOTE][0] == 8 && head.freed_squares[PROFILE_REMOTE][0] == 64);
    CHECK(head.freed_copies[PROFILE_LOCAL][0] == 0 && head.freed_squares[PROFILE_LOCAL][0] == 0);
    CHECK(samples.freed_elsewhere[PROFILE_SMALL] == UINT64_C(8) * GAP);
}

TEST(the_page_faults_of_a_free_count_once_for_each_copy)
{
    enum { PAGES = 3, BYTES = PAGES << 12 };
    char *area = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(area != MAP_FAILED);
    begin_free(100, 8 * GAP);
    for (size_t at = 0; at < BYTES; at += 4096)
        *(volatile char *)&area[at] = 1;
    account_leave_release_slowly(&me);
    const struct profile_times *times = local(PROFILE_SMALL);
    CHECK(me.faults > 0 && times->faults == 8 * me.faults);
    CHECK(times->faults_squared == 8 * me.faults * me.faults);
    munmap(area, BYTES);
}

/* A pipe takes the place of the events: the kernel's answer to a read of a group of events is the
 * number of events, two equal times and the count of the event. */
TEST(the_events_of_a_free_count_once_for_each_copy)
{
    enum { BEGIN = 10, END = 30, EVENTS = END - BEGIN };
    const uint64_t group[] = {1, 5, 5, END};
    int ends[2];
    REQUIRE(pipe(ends) == 0 && write(ends[1], group, sizeof group) == sizeof group);
    begin_free(100, 8 * GAP);
    me.faults_wanted = false;
    me.counted = true;
    me.counter_slots = 1;
    me.counters[0] = ends[0];
    me.events[0] = BEGIN;
    account_leave_release_slowly(&me);
    const struct profile_times *times = local(PROFILE_SMALL);
    CHECK(times->event_operations == 8 && times->events[0] == 8 * EVENTS);
    CHECK(times->events_squared[0] == 8 * EVENTS * EVENTS);
    CHECK(times->count == 0 && times->switched == 0);
    me.counter_slots = 0;
    close(ends[0]);
    close(ends[1]);
}

/* The probe once called getrusage() at the end of such an operation, which killed the process. */
TEST(a_filter_that_another_thread_installs_ends_the_counting_of_page_faults)
{
    begin_free(100, GAP);
    CHECK(me.faults_wanted);
    direct_forbidden = true;
    account_leave_release_slowly(&me);
    direct_forbidden = false;
    const struct profile_times *times = local(PROFILE_SMALL);
    CHECK(times->fault_operations == 0 && times->count + times->switched == 1);
}

/* A signal handler forks, and the child can make no file. */
static void fork_without_file(void)
{
    session.head = NULL;
    session.samples = NULL;
    atomic_store(&session.next_moment_ticks, 0);
}

/* The handler comes during the reading of the page faults at the end of the operation. */
static int fork_at_end_of_free(void)
{
    begin_free(100, GAP);
    if (!trap_calls(fork_without_file))
        return NO_FILTER;
    account_leave_release_slowly(&me);
    return session.head != NULL || me.guard != THREAD_OUTSIDE;
}

static int fork_at_end_of_allocation(void)
{
    begin_free(100, GAP);
    me.function = PROFILE_MALLOC;
    if (!trap_calls(fork_without_file))
        return NO_FILTER;
    account_leave_slowly(&me, PROFILE_MALLOC, (const void *)(UINT64_C(300) << 30), 100);
    return session.head != NULL || me.guard != THREAD_OUTSIDE;
}

static int fork_at_end_of_failure(void)
{
    begin_free(100, GAP);
    me.function = PROFILE_MALLOC;
    if (!trap_calls(fork_without_file))
        return NO_FILTER;
    account_leave_slowly(&me, PROFILE_MALLOC, NULL, 100);
    return session.head != NULL || me.guard != THREAD_OUTSIDE;
}

/* The child once wrote to the file that it did not have. */
TEST(a_signal_handler_may_fork_at_the_end_of_an_operation)
{
    int (*const runs[])(void) = {fork_at_end_of_free, fork_at_end_of_allocation,
                                 fork_at_end_of_failure};
    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        int code = exit_code_of(runs[i]);
        if (code == NO_FILTER)
            SKIP("system calls cannot be trapped here");
        CHECK(code == 0);
    }
}

static int end_without_file(void)
{
    session.head = NULL;
    session.samples = NULL;
    thread_state.guard = THREAD_OUTSIDE;
    thread_end_process(0);
    return thread_state.guard != THREAD_OUTSIDE;
}

TEST(a_child_without_a_file_can_end)
{
    CHECK(exit_code_of(end_without_file) == 0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
