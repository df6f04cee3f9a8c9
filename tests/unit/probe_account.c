/* probe_account.c - tests what a timed free adds to the file. */
#include "probe/account.h"

#include "probe/direct_syscall.h"
#include "test.h"

enum { GAP = 256 };

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

/* Each free once counted the same, so those from the time with the most live blocks counted too
 * little. */
TEST(a_free_counts_once_for_each_of_its_copies)
{
    begin_free(100, 8 * GAP);
    account_leave_release_slowly(&me);
    CHECK(local(PROFILE_SMALL)->fault_operations == 8 && local(PROFILE_SMALL)->count == 0);
    CHECK(head.freed_copies[PROFILE_LOCAL][0] == 8 && head.freed_squares[PROFILE_LOCAL][0] == 64);
    CHECK(samples.freed[PROFILE_SMALL] == UINT64_C(8) * GAP);
    begin_free(100, 8 * GAP);
    me.faults_wanted = false;
    account_leave_release_slowly(&me);
    const struct profile_times *times = local(PROFILE_SMALL);
    CHECK(times->switched == 1 || times->count == 8);
    CHECK(times->buckets[profile_bucket(times->max_ticks)] == times->count);
    CHECK(times->ticks == times->count * times->max_ticks);
    begin_free(1 << 20, 4);
    me.faults_wanted = false;
    account_leave_release_slowly(&me);
    CHECK(local(PROFILE_LARGE)->switched == 1 || local(PROFILE_LARGE)->count == 4);
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

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
