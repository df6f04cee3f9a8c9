/* alloc_run_cache_learning.c - tests what an epoch costs, and that a thread which frees and
 * allocates more than it may keep is soon allowed to keep it. */
#include "alloc/alloc.h"

#include "alloc/run_cache_learning.h"
#include "alloc_os.h"
#include "base/clock.h"
#include "test.h"

TEST(an_epoch_costs_its_misses_and_what_was_kept)
{
    CHECK(run_cache_learning_cost_ns(0, 0, 1) == 0);
    CHECK(run_cache_learning_cost_ns(1000, 0, 1) == 250e3);
    /* One slice has four pages of 4 KiB, and a page costs 6,220 ns per second. */
    CHECK(run_cache_learning_cost_ns(0, 1, 2) == 4 * 2 * 6220.0);
    CHECK(run_cache_learning_cost_ns(1000, 1, 2) == 250e3 + 4 * 2 * 6220.0);
}

TEST(the_first_step_is_what_every_program_may_keep)
{
    run_cache_learning_begin();
    CHECK(run_cache_is_learnt());
    CHECK(run_cache_learnt(RUN_CACHE_MOST) == RUN_CACHE_MOST);
    CHECK(run_cache_learnt(0) == 0);
}

enum { BLOCKS = 200, SLICES = 4, MOST_NS_LOG2 = 36 };

static void come_and_go(void)
{
    static void *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i] = alloc_malloc(SLICES * SLICE_BYTES);
    for (unsigned i = 0; i < BLOCKS; i++)
        alloc_free(blocks[i]);
}

/* Each round allocates 12.5 MiB, and a thread may keep 2 MiB at first. When the thread may keep 16
 * MiB, it has no misses, and no epoch ends any more. The test waits for
 * 2^36 ns, about a minute, at most. */
TEST(a_thread_that_misses_much_may_keep_more)
{
    run_cache_learning_begin();
    uint64_t began_ns = clock_now_ns();
    while (run_cache_learnt(RUN_CACHE_MOST) < BLOCKS * SLICES &&
           clock_now_ns() - began_ns < UINT64_C(1) << MOST_NS_LOG2)
        come_and_go();
    CHECK(run_cache_learnt(RUN_CACHE_MOST) >= BLOCKS * SLICES);
    come_and_go();
    CHECK(thread_own_heap()->runs.slices == BLOCKS * SLICES);
    heap_check(thread_own_heap());
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
