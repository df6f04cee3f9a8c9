/* alloc_big_cache.c - tests the runs that a thread keeps by the place that allocated them: a place
 * gets its own runs again, a ring holds four, and no more is kept than the limit allows. */
#include "alloc/alloc.h"

#include "alloc/page_heap.h"
#include "alloc_os.h"
#include "test.h"

/* Two places. A place has a return address of its own. */
static const char places[2];

static void *at_place(unsigned which, size_t slices)
{
    bool zero;
    void *p = alloc_large(slices * SLICE_BYTES, 1, &zero, &places[which]);
    CHECK(p != NULL);
    return p;
}

static const struct big_cache *cache(void)
{
    return thread_own_heap()->big;
}

static void begin(void)
{
    if (!big_cache_is_on())
        alloc_keep_by_place();
    alloc_free(alloc_malloc(16));
    heap_collect(thread_own_heap());
}

static void check_all(void)
{
    heap_check(thread_own_heap());
    page_heap_check();
}

TEST(a_place_gets_its_own_run_again)
{
    begin();
    void *one = at_place(0, 10);
    void *other = at_place(1, 10);
    alloc_free(one);
    alloc_free(other);
    check_all();
    CHECK(cache()->slices == 20 && thread_own_heap()->runs.slices == 0);
    CHECK(at_place(0, 10) == one);
    void *third = at_place(0, 10);
    CHECK(third != other);
    CHECK(at_place(1, 10) == other);
    check_all();
    alloc_free(third);
    alloc_free(one);
    alloc_free(other);
    heap_collect(thread_own_heap());
}

TEST(a_run_may_be_a_quarter_too_long_and_the_shortest_that_fits_is_taken)
{
    begin();
    void *ten = at_place(0, 10);
    void *nine = at_place(0, 9);
    alloc_free(nine);
    alloc_free(ten);
    void *seven = at_place(0, 7); /* 7 + a quarter of 7 is less than 9 */
    CHECK(seven != nine && seven != ten);
    CHECK(at_place(0, 8) == nine);
    CHECK(alloc_usable_size(nine) == 9 * SLICE_BYTES);
    CHECK(at_place(0, 8) == ten);
    alloc_free(seven);
    alloc_free(nine);
    alloc_free(ten);
    heap_collect(thread_own_heap());
}

TEST(a_ring_keeps_the_last_four_runs)
{
    begin();
    void *blocks[BIG_CACHE_RUNS + 1];
    for (unsigned i = 0; i <= BIG_CACHE_RUNS; i++)
        blocks[i] = at_place(0, 5);
    for (unsigned i = 0; i <= BIG_CACHE_RUNS; i++)
        alloc_free(blocks[i]);
    CHECK(cache()->slices == 5 * BIG_CACHE_RUNS);
    for (unsigned i = BIG_CACHE_RUNS; i > 0; i--)
        CHECK(at_place(0, 5) == blocks[i]);
    CHECK(cache()->slices == 0);
    for (unsigned i = BIG_CACHE_RUNS; i > 0; i--)
        alloc_free(blocks[i]);
    heap_collect(thread_own_heap());
}

static unsigned forgotten;

static void forget(struct slab *run)
{
    forgotten++;
    large_free(run);
}

/* Returns a number that selects this ring. */
static uint32_t place_of_ring(uint32_t ring, uint32_t which)
{
    return ring * (UINT32_MAX / BIG_CACHE_RINGS + 1) + which;
}

TEST(the_callers_of_one_wrapper_have_rings_of_their_own)
{
    static const char stack[256 * 16];
    uint64_t rings = 0;
    for (unsigned depth = 0; depth < 256; depth++)
        rings |= UINT64_C(1) << (big_cache_place(&places[0], &stack[depth * 16]) >> 26);
    CHECK(__builtin_popcountll(rings) > BIG_CACHE_RINGS / 2);
    CHECK(big_cache_place(&places[0], stack) == big_cache_place(&places[0], stack));
    CHECK(big_cache_place(&places[0], stack) != big_cache_place(&places[1], stack));
}

TEST(a_place_that_takes_over_a_ring_forgets_its_runs)
{
    begin();
    struct big_cache *own = big_cache_new();
    REQUIRE(own != NULL);
    struct slab *runs[2];
    bool zero;
    for (unsigned i = 0; i < 2; i++) {
        runs[i] = slab_at(region_index(large_allocate(3 * SLICE_BYTES, 1, &zero)));
        runs[i]->place = place_of_ring(7, 1 + i);
        big_cache_put(own, runs[i], 100, forget);
        big_cache_check(own);
    }
    CHECK(forgotten == 1 && own->slices == 3);
    CHECK(big_cache_take(own, place_of_ring(7, 1), 3) == NULL);
    CHECK(big_cache_take(own, place_of_ring(7, 2), 3) == runs[1]);
    large_free(runs[1]);
}

TEST(no_more_than_the_limit_is_kept_and_the_oldest_of_each_ring_go_first)
{
    begin();
    struct big_cache *own = big_cache_new();
    REQUIRE(own != NULL);
    bool zero;
    forgotten = 0;
    for (unsigned i = 0; i < 3 * BIG_CACHE_RINGS; i++) {
        struct slab *run = slab_at(region_index(large_allocate(4 * SLICE_BYTES, 1, &zero)));
        run->place = place_of_ring(i % BIG_CACHE_RINGS, 1);
        big_cache_put(own, run, 40, forget);
        big_cache_check(own);
        CHECK(own->slices <= 40);
    }
    CHECK(own->slices == 40 && forgotten == 3 * BIG_CACHE_RINGS - 10);
    struct slab *run = slab_at(region_index(large_allocate(41 * SLICE_BYTES, 1, &zero)));
    run->place = 1;
    big_cache_put(own, run, 40, forget);
    CHECK(own->slices == 40 && forgotten == 3 * BIG_CACHE_RINGS - 9);
    while ((run = big_cache_evict(own)) != NULL)
        large_free(run);
    CHECK(own->slices == 0);
    page_heap_check();
}

TEST(a_heap_that_is_collected_keeps_nothing)
{
    begin();
    size_t before = page_heap_level().use.used;
    void *one = at_place(0, 20);
    void *other = at_place(1, 300);
    alloc_free(one);
    alloc_free(other);
    CHECK(cache()->slices == 320);
    heap_collect(thread_own_heap());
    CHECK(cache()->slices == 0 && page_heap_level().use.used == before);
    check_all();
}

/* A moved block keeps its contents. Its run is not kept, because it has no place. */
TEST(a_block_that_realloc_moves_has_no_place)
{
    begin();
    char *p = at_place(0, 3);
    memset(p, 0x5a, 3 * SLICE_BYTES);
    for (size_t slices = 5; slices < 400; slices = slices * 3 / 2) {
        p = alloc_realloc_large(p, slices * SLICE_BYTES, &places[1]);
        REQUIRE(p != NULL);
        CHECK(p[0] == 0x5a && p[3 * SLICE_BYTES - 1] == 0x5a);
        check_all();
    }
    uint32_t before = cache()->slices;
    alloc_free(p);
    CHECK(cache()->slices == before);
    CHECK(thread_own_heap()->runs.slices == 0 && thread_own_heap()->runs.long_run == 0);
    heap_collect(thread_own_heap());
    check_all();
}

/* A new slab gives back one kept run, as it does with the lists of run_cache.h. */
TEST(a_heap_that_grows_keeps_no_run)
{
    begin();
    static void *small[20000];
    void *block = at_place(0, 30);
    alloc_free(block);
    CHECK(cache()->slices == 30);
    for (unsigned i = 0; i < COUNT_OF(small); i++)
        small[i] = alloc_malloc(1000);
    CHECK(cache()->slices == 0);
    for (unsigned i = 0; i < COUNT_OF(small); i++)
        alloc_free(small[i]);
    heap_collect(thread_own_heap());
    check_all();
}

/* The ring's own oldest run goes before the runs of other rings. */
TEST(a_full_ring_makes_way_before_others)
{
    begin();
    struct big_cache *own = big_cache_new();
    REQUIRE(own != NULL);
    bool zero;
    forgotten = 0;
    for (unsigned i = 0; i < 9; i++) {
        uint32_t slices = i < 4 ? 30 : 60;
        struct slab *run = slab_at(region_index(large_allocate(slices * SLICE_BYTES, 1, &zero)));
        run->place = place_of_ring(i < 4 ? 1 : 2, 1);
        big_cache_put(own, run, 384, forget);
        big_cache_check(own);
    }
    CHECK(forgotten == 1 && own->slices == 4 * 30 + 4 * 60);
    struct slab *run;
    while ((run = big_cache_evict(own)) != NULL)
        large_free(run);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
