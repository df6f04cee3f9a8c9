/* alloc_kept_runs.c - runs that a thread keeps: what a slab leaves is the next slab's, and who grows keeps none. */
#include "alloc/alloc.h"

#include "alloc/page_heap.h"
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

/* Of the classes' own slabs, and not of those that a small process lends. */
static void be_large(void)
{
    come_and_go(MANY, MEDIUM);
    come_and_go(MANY, SMALL);
    heap_collect(thread_heap);
}

TEST(a_slab_takes_the_run_that_another_left)
{
    be_large();
    unsigned count = SLABS * (SLICE_BYTES / SMALL);
    allocate(count, SMALL);
    give_back(count);
    size_t kept = thread_heap->runs.slices;
    CHECK(kept >= SLABS / 2 && kept <= SLABS);
    struct page_heap_level before = level();
    count = SLABS / 4 * (SLICE_BYTES / MEDIUM);
    allocate(count, MEDIUM);
    struct page_heap_level after = level();
    CHECK(after.use.used <= before.use.used && after.fresh == before.fresh);
    CHECK(thread_heap->runs.slices < kept);
    heap_check(thread_heap);
    page_heap_check();
    give_back(count);
}

/* Each new slab that finds no run of its length sends one back. */
TEST(a_heap_that_grows_keeps_no_run)
{
    be_large();
    unsigned count = 10;
    allocate(count, 100000);
    give_back(count);
    CHECK(thread_heap->runs.slices == 70);
    struct page_heap_level before = level();
    count = 20 * (SLICE_BYTES / MEDIUM);
    allocate(count, MEDIUM);
    CHECK(thread_heap->runs.slices == 0);
    CHECK(level().use.used <= before.use.used - 70 + 20);
    heap_check(thread_heap);
    page_heap_check();
    give_back(count);
}

/* It is taken as it is: what was written is no zero, and calloc clears it. */
TEST(a_run_that_was_kept_is_not_taken_for_zero)
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

TEST(what_is_kept_goes_back_at_once_when_asked)
{
    be_large();
    come_and_go(SLABS * (SLICE_BYTES / SMALL), SMALL);
    CHECK(thread_heap->runs.slices > 0);
    heap_collect(thread_heap);
    CHECK(thread_heap->runs.slices == 0);
    page_heap_check();
}

/* The last one: there is no way back. */
TEST(beside_a_thread_that_looks_nothing_is_kept)
{
    run_cache_keep_nothing();
    heap_collect(thread_heap);
    size_t before = level().use.used;
    come_and_go(MANY, SMALL);
    alloc_free(alloc_malloc(20 * SLICE_BYTES));
    CHECK(thread_heap->runs.slices == 0 && thread_heap->empty == 0);
    CHECK(level().use.used <= before + slab_slices(size_class(SMALL))); /* the one that it allocates from */
    heap_check(thread_heap);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
