/* alloc_run_cache_policy.c - tests the runs that a thread keeps: the run of a freed slab or large
 * block serves the next slab or large block, and a heap that grows keeps no runs. */
#include "alloc/alloc.h"

#include "alloc/page_heap.h"
#include "alloc/purge.h"
#include "alloc_os.h"
#include "test.h"

enum { SMALL = 400, MEDIUM = 2000, SLABS = 20, MANY = 4000 };

static void *block[MANY];

static void allocate(unsigned count, size_t bytes)
{
    for (unsigned i = 0; i < count; i++) {
        block[i] = alloc_malloc(bytes);
        REQUIRE(block[i] != NULL);
        memset(block[i], 0x5a, bytes);
    }
}

static void give_back(unsigned count)
{
    while (count > 0)
        alloc_free(block[--count]);
}

static void come_and_go(unsigned count, size_t bytes)
{
    allocate(count, bytes);
    give_back(count);
}

static struct page_heap_level level(void)
{
    return page_heap_level();
}

/* Makes the process too large for borrowed blocks, so that each class allocates from its own
 * slabs. */
static void be_large(void)
{
    come_and_go(MANY, MEDIUM);
    come_and_go(MANY, SMALL);
    heap_collect(thread_own_heap());
}

TEST(a_slab_takes_the_run_that_another_left)
{
    be_large();
    unsigned count = SLABS * (SLICE_BYTES / SMALL);
    allocate(count, SMALL);
    give_back(count);
    size_t kept = thread_own_heap()->runs.slices;
    CHECK(kept >= SLABS / 2 && kept <= SLABS);
    struct page_heap_level before = level();
    count = SLABS / 4 * (SLICE_BYTES / MEDIUM);
    allocate(count, MEDIUM);
    struct page_heap_level after = level();
    CHECK(after.use.used <= before.use.used && after.fresh == before.fresh);
    CHECK(thread_own_heap()->runs.slices < kept);
    heap_check(thread_own_heap());
    page_heap_check();
    give_back(count);
}

/* The ten large blocks leave ten kept runs of 7 slices each. Each new slab that finds no run of its
 * length returns one kept run to the page heap. */
TEST(a_heap_that_grows_keeps_no_run)
{
    be_large();
    unsigned count = 10;
    allocate(count, 100000);
    give_back(count);
    CHECK(thread_own_heap()->runs.slices == 70);
    struct page_heap_level before = level();
    count = 20 * (SLICE_BYTES / MEDIUM);
    allocate(count, MEDIUM);
    CHECK(thread_own_heap()->runs.slices == 0);
    CHECK(level().use.used <= before.use.used - 70 + 20);
    heap_check(thread_own_heap());
    page_heap_check();
    give_back(count);
}

/* A kept run is reused as it is, with its old contents. calloc has to clear it. */
TEST(calloc_clears_a_run_that_was_kept)
{
    be_large();
    come_and_go(SLABS * (SLICE_BYTES / SMALL), SMALL);
    for (unsigned i = 0; i < SLABS * (SLICE_BYTES / MEDIUM); i++) {
        unsigned char *p = alloc_calloc(1, MEDIUM);
        REQUIRE(p != NULL);
        for (unsigned at = 0; at < MEDIUM; at++)
            CHECK(p[at] == 0);
    }
}

TEST(heap_collect_returns_all_kept_runs)
{
    be_large();
    come_and_go(SLABS * (SLICE_BYTES / SMALL), SMALL);
    CHECK(thread_own_heap()->runs.slices > 0);
    heap_collect(thread_own_heap());
    CHECK(thread_own_heap()->runs.slices == 0);
    page_heap_check();
}

static size_t used(void)
{
    return level().use.used;
}

static void *long_block(size_t slices)
{
    void *p = alloc_malloc(slices * SLICE_BYTES);
    CHECK(p != NULL);
    return p == NULL ? NULL : memset(p, 0x5a, slices * SLICE_BYTES);
}

/* The page heap does not take part: its count of used slices stays the same. */
TEST(a_long_block_takes_the_run_that_the_last_one_left)
{
    alloc_free(alloc_malloc(100 * SLICE_BYTES));
    size_t before = used();
    void *p = alloc_malloc(100 * SLICE_BYTES);
    CHECK(used() == before);
    alloc_free(p);
    void *shorter = alloc_malloc(80 * SLICE_BYTES);
    CHECK(shorter == p && used() == before && alloc_usable_size(shorter) == 100 * SLICE_BYTES);
    heap_check(thread_own_heap());
    page_heap_check();
    alloc_free(shorter);
    heap_collect(thread_own_heap());
    CHECK(used() == before - 100);
}

TEST(a_long_run_grows_in_place)
{
    void *p = long_block(100);
    size_t before = used();
    alloc_free(p);
    CHECK(alloc_malloc(110 * SLICE_BYTES) == p);
    CHECK(used() == before + 10 && alloc_usable_size(p) == 110 * SLICE_BYTES);
    page_heap_check();
    alloc_free(p);
    heap_collect(thread_own_heap());
}

TEST(a_run_that_cannot_grow_or_is_twice_too_long_is_returned)
{
    enum { LONG = 2 * RUN_CACHE_MOST };
    char *p = long_block(LONG);
    char *behind = long_block(LONG);
    for (int i = 0; i < 10 && behind != p + LONG * SLICE_BYTES; i++) {
        p = behind;
        behind = long_block(LONG);
    }
    REQUIRE(behind == p + LONG * SLICE_BYTES);
    size_t before = used();
    alloc_free(p);
    CHECK(alloc_malloc((LONG + 1) * SLICE_BYTES) != p);
    CHECK(used() == before + 1 && thread_own_heap()->runs.long_run == 0);
    alloc_free(behind);
    CHECK(alloc_malloc((LONG / 2 + 1) * SLICE_BYTES) == behind && used() == before + 1);
    CHECK(alloc_usable_size(behind) == LONG * SLICE_BYTES);
    alloc_free(behind);
    void *half = alloc_malloc(LONG / 2 * SLICE_BYTES);
    CHECK(used() == before + 1 - LONG / 2 && thread_own_heap()->runs.long_run == 0);
    alloc_free(half);
    heap_collect(thread_own_heap());
    page_heap_check();
}

TEST(only_the_last_freed_long_run_is_kept)
{
    void *first = long_block(100);
    void *second = long_block(100);
    void *too_long = long_block(2 * RUN_CACHE_MOST + 1);
    size_t before = used();
    alloc_free(first);
    alloc_free(second);
    CHECK(used() == before - 100);
    alloc_free(too_long);
    before -= 2 * RUN_CACHE_MOST + 1;
    CHECK(used() == before - 100);
    CHECK(alloc_malloc(100 * SLICE_BYTES) == second);
    alloc_free(second);
    heap_collect(thread_own_heap());
    CHECK(thread_own_heap()->runs.long_run == 0 && used() == before - 200);
    page_heap_check();
}

/* At the end of an epoch, a thread gives kept runs back. Some tests count on kept runs, so they
 * begin anew if an epoch ended meanwhile, as it may on a busy machine. */
static uint32_t epoch;

static bool epoch_begins(void)
{
    heap_collect(thread_own_heap());
    epoch = purge_epoch();
    return true;
}

static bool epoch_has_ended(void)
{
    return purge_epoch() != epoch;
}

enum { STAYS = 6, LONG_SLICES = 2 * RUN_CACHE_MOST, SHORTER_SLICES = LONG_SLICES / 2 + 1 };

/* Each block takes the longer run that the block before it freed, and keeps the whole of it.
 * Returns the slices beyond the requests. */
static size_t take_longer_runs(void *stays[STAYS])
{
    size_t wasted = 0;
    for (unsigned i = 0; i < STAYS; i++) {
        alloc_free(long_block(LONG_SLICES));
        stays[i] = alloc_malloc(SHORTER_SLICES * SLICE_BYTES);
        wasted += alloc_usable_size(stays[i]) / SLICE_BYTES - SHORTER_SLICES;
    }
    return wasted;
}

TEST(long_blocks_that_stay_waste_no_more_than_one_run_together)
{
    size_t wasted = 0;
    bool again = true;
    while (again && epoch_begins()) {
        void *stays[STAYS];
        wasted = take_longer_runs(stays);
        again = epoch_has_ended();
        for (unsigned i = 0; i < STAYS; i++)
            alloc_free(stays[i]);
        CHECK(again || thread_own_heap()->runs.long_slack == 0);
    }
    CHECK(wasted > 0 && wasted <= LONG_SLICES);
    heap_collect(thread_own_heap());
    page_heap_check();
}

TEST(an_aligned_long_block_takes_the_kept_run_if_that_is_aligned)
{
    void *p = long_block(100);
    alloc_free(p);
    CHECK(alloc_aligned(64, 100 * SLICE_BYTES) == p);
    alloc_free(p);
    void *elsewhere = alloc_aligned(2 * SLICE_BYTES, 100 * SLICE_BYTES);
    CHECK(elsewhere != p && thread_own_heap()->runs.long_run != 0);
    alloc_free(elsewhere);
    heap_collect(thread_own_heap());
}

TEST(a_resized_block_keeps_slices_that_it_never_asked_for)
{
    void *p = long_block(128);
    alloc_free(p);
    size_t before = used();
    CHECK(alloc_malloc(80 * SLICE_BYTES) == p);
    CHECK(alloc_realloc(p, 90 * SLICE_BYTES) == p && used() == before);
    CHECK(alloc_realloc(p, 128 * SLICE_BYTES) == p && used() == before);
    CHECK(alloc_realloc(p, 70 * SLICE_BYTES) == p && used() == before - 58);
    alloc_free(p);
    heap_collect(thread_own_heap());
    page_heap_check();
}

/* The slices that a block did not ask for once stayed in the sum after it had used them. After
 * eight such blocks, no kept run was long enough. */
TEST(a_block_that_grows_into_its_slack_does_not_spoil_the_next_reuse)
{
    heap_collect(thread_own_heap());
    void *p = long_block(128);
    alloc_free(p);
    for (int i = 0; i < 20; i++) {
        CHECK(alloc_malloc(96 * SLICE_BYTES) == p);
        CHECK(alloc_realloc(p, 128 * SLICE_BYTES) == p);
        alloc_free(p);
        CHECK(thread_own_heap()->runs.long_slack == 0);
    }
    heap_collect(thread_own_heap());
    page_heap_check();
}

TEST(an_aligned_block_takes_a_kept_run_of_its_own_length)
{
    void *p = long_block(20);
    alloc_free(p);
    CHECK(CAIRN_HARDENED || alloc_aligned(64, 20 * SLICE_BYTES - 100) == p);
    alloc_free(CAIRN_HARDENED ? alloc_malloc(20 * SLICE_BYTES) : p);
    void *shorter = alloc_aligned(64, 19 * SLICE_BYTES);
    CHECK(shorter != p);
    alloc_free(shorter);
    heap_collect(thread_own_heap());
}

/* A kept run counts as used memory. At the memory limit the allocator frees the kept run, and a
 * block can then grow in place. */
TEST(at_the_limit_the_kept_run_makes_room_for_a_block_that_grows)
{
    heap_collect(thread_own_heap());
    void *p = long_block(300);
    void *behind = long_block(200);
    alloc_free(behind);
    REQUIRE(thread_own_heap()->runs.long_run != 0);
    size_t before = used();
    page_heap_limit((before + 20) * SLICE_BYTES);
    void *grown = alloc_realloc(p, 400 * SLICE_BYTES);
    page_heap_limit(0);
    CHECK(grown == p && used() == before - 200 + 100);
    alloc_free(grown == NULL ? p : grown);
    page_heap_check();
}

/* A heap keeps an empty slab for the next block of its class. At the memory limit it must return
 * this slab, so that a block of another class fits. */
TEST(at_the_limit_an_empty_slab_makes_room_for_a_block_of_another_class)
{
    be_large();
    come_and_go(SLICE_BYTES / SMALL / 2, SMALL);
    REQUIRE(thread_own_heap()->runs.slices == 0);
    page_heap_limit(used() * SLICE_BYTES);
    void *p = alloc_malloc(MEDIUM);
    page_heap_limit(0);
    CHECK(p != NULL);
    alloc_free(p);
    heap_check(thread_own_heap());
    page_heap_check();
}

/* A growing heap returns its long run before its other kept runs. */
TEST(a_heap_that_grows_keeps_no_long_run)
{
    be_large();
    alloc_free(long_block(100));
    CHECK(thread_own_heap()->runs.long_run != 0);
    unsigned count = 20 * (SLICE_BYTES / MEDIUM);
    allocate(count, MEDIUM);
    CHECK(thread_own_heap()->runs.long_run == 0);
    give_back(count);
    page_heap_check();
}

TEST(calloc_clears_a_long_run_that_was_kept)
{
    alloc_free(long_block(100));
    const unsigned char *p = alloc_calloc(1, 100 * SLICE_BYTES);
    REQUIRE(p != NULL);
    size_t other = 0;
    for (size_t at = 0; at < 100 * SLICE_BYTES; at++)
        other += p[at] != 0;
    CHECK(other == 0);
    alloc_free((void *)(uintptr_t)p);
}

/* Lets the cache overflow, and then asks for 20 slices, for more than any run has, and for 20
 * slices again. Sets `sizes` to the usable sizes of the two blocks of 20 slices, in slices. */
static void ask_after_overflow(size_t sizes[2])
{
    void *blocks[5];
    alloc_free(long_block(30));
    blocks[0] = alloc_malloc(20 * SLICE_BYTES);
    CHECK(thread_own_heap()->runs.slices == 30 || epoch_has_ended());
    for (unsigned i = 1; i < COUNT_OF(blocks); i++)
        blocks[i] = long_block(30);
    for (unsigned i = 0; i < COUNT_OF(blocks); i++)
        alloc_free(blocks[i]);
    CHECK(thread_own_heap()->runs.slices == 4 * 30 || epoch_has_ended());
    alloc_free(long_block(40));
    void *half_too_long = alloc_malloc(20 * SLICE_BYTES);
    sizes[0] = alloc_usable_size(half_too_long) / SLICE_BYTES;
    void *unserved = alloc_malloc(41 * SLICE_BYTES);
    void *p = alloc_malloc(20 * SLICE_BYTES);
    sizes[1] = alloc_usable_size(p) / SLICE_BYTES;
    alloc_free(p);
    alloc_free(unserved);
    alloc_free(half_too_long);
}

/* After an overflow the cache hands out runs that are up to half longer than needed, because it
 * would evict them next. It stops after the first request for which no run fits. */
TEST(a_cache_that_overflowed_hands_out_runs_up_to_half_too_long)
{
    size_t sizes[2] = {0};
    bool again = true;
    while (again && epoch_begins()) {
        ask_after_overflow(sizes);
        again = epoch_has_ended();
    }
    CHECK(sizes[0] == 30 && sizes[1] == 20);
    heap_check(thread_own_heap());
    heap_collect(thread_own_heap());
}

/* This must be the last test, because run_cache_keep_nothing() cannot be undone. */
TEST(after_run_cache_keep_nothing_no_run_is_kept)
{
    run_cache_keep_nothing();
    heap_collect(thread_own_heap());
    size_t before = level().use.used;
    come_and_go(MANY, SMALL);
    alloc_free(alloc_malloc(20 * SLICE_BYTES));
    alloc_free(alloc_malloc(100 * SLICE_BYTES));
    CHECK(thread_own_heap()->runs.slices == 0 && thread_own_heap()->runs.long_run == 0 &&
          thread_own_heap()->empty == 0);
    CHECK(level().use.used <=
          before + slab_slices(size_class(SMALL))); /* the slab that the thread allocates from */
    heap_check(thread_own_heap());
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
