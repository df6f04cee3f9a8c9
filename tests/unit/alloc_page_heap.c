/* alloc_page_heap.c - tests the page heap against a model: which run each slice belongs to, what
 * the slice contains, and whether memory reported as zero reads as zero. */
#include "alloc/huge_page_collapse.h"
#include "alloc/huge_page_density.h"
#include "alloc/huge_page_timing.h"
#include "alloc/huge_page_unasked.h"
#include "alloc/large.h"
#include "alloc/page_heap.h"

#include "alloc/chunk.h"
#include "alloc_os.h"
#include "base/bitmap.h"
#include "base/random.h"
#include "base/ticks.h"
#include "test.h"

#include <stdlib.h>

enum { RUNS = 400 };

static struct run {
    size_t index; /* 0: the entry is unused */
    size_t slices;
    uint64_t mark;
} runs[RUNS];

static uint64_t marks;

static uint64_t *word_of(size_t index)
{
    return region_address(index);
}

/* Writes the mark into the first and the last word of every slice. If `zero`, first checks that
 * these words are zero in the slices from `from` on. */
static void mark(struct run *run, size_t from, bool zero)
{
    run->mark = ++marks;
    for (size_t i = from; i < run->slices; i++) {
        uint64_t *first = word_of(run->index + i);
        uint64_t *last = first + SLICE_BYTES / sizeof *first - 1;
        CHECK(!zero || (*first == 0 && *last == 0));
    }
    for (size_t i = 0; i < run->slices; i++)
        *word_of(run->index + i) = word_of(run->index + i)[SLICE_BYTES / 8 - 1] = run->mark;
}

static void verify(const struct run *run)
{
    for (size_t i = 0; i < run->slices; i++) {
        CHECK(*word_of(run->index + i) == run->mark);
        CHECK(word_of(run->index + i)[SLICE_BYTES / 8 - 1] == run->mark);
    }
}

static void drop(struct run *run)
{
    verify(run);
    page_heap_free(run->index, run->slices);
    run->index = 0;
}

static size_t some_slices(struct random *random)
{
    uint64_t kind = random_below(random, 100);
    return 1 + (size_t)random_below(random, kind < 70 ? 16 : kind < 97 ? 140 : 900);
}

static void one_operation(struct random *random)
{
    struct run *run = &runs[random_below(random, RUNS)];
    uint64_t what = random_below(random, 100);
    bool zero = false;
    if (run->index != 0 && what < 15) {
        size_t more = some_slices(random);
        if (page_heap_extend(run->index, run->slices, more, &zero)) {
            size_t before = run->slices;
            run->slices += more;
            mark(run, before, zero);
        }
    } else if (run->index != 0 && what < 25 && run->slices > 1) {
        size_t keep = 1 + (size_t)random_below(random, run->slices - 1);
        page_heap_free(run->index + keep, run->slices - keep);
        run->slices = keep;
    } else if (run->index != 0) {
        drop(run);
    } else if (what < 10) {
        size_t alignment = (size_t)SLICE_BYTES << (1 + random_below(random, 9));
        run->slices = some_slices(random);
        run->index = page_heap_allocate_aligned(run->slices, alignment, &zero);
        if (run->index != 0) {
            CHECK((uintptr_t)region_address(run->index) % alignment == 0);
            mark(run, 0, zero);
        }
    } else {
        run->slices = some_slices(random);
        run->index = page_heap_allocate(run->slices, 0, &zero);
        if (run->index != 0)
            mark(run, 0, zero);
    }
    if (what == 99)
        page_heap_purge(random_below(random, 64) << 20);
}

static void drop_all(void)
{
    for (int i = 0; i < RUNS; i++)
        if (runs[i].index != 0)
            drop(&runs[i]);
}

static uint64_t seed = 1;

TEST(runs_never_overlap_and_keep_their_contents)
{
    struct random random = random_of(seed);
    for (int i = 0; i < 12000 && !test_failed; i++) {
        one_operation(&random);
        if (i % 500 == 0)
            page_heap_check();
    }
    drop_all();
    page_heap_check();
    CHECK(page_heap_statistics().used_slices == 0);
}

TEST(all_that_is_free_can_be_given_back_and_reads_as_zero_again)
{
    page_heap_purge(0);
    CHECK(page_heap_statistics().idle_slices == 0);
    page_heap_check();
    bool zero;
    size_t index = page_heap_allocate(300, 0, &zero);
    REQUIRE(index != 0);
    CHECK(zero);
    page_heap_free(index, 300);
}

TEST(a_refused_call_changes_nothing_and_service_resumes)
{
    struct random random = random_of(seed + 1);
    for (unsigned n = 1; n <= 60; n++) {
        fake_os.call_count = 0;
        fake_os.refuse_call = n;
        for (int i = 0; i < 200; i++)
            one_operation(&random);
        fake_os.refuse_call = 0;
        page_heap_check();
        page_heap_purge(0);
    }
    fake_os.call_count = 0;
    fake_os.refuse_after = 1;
    for (int i = 0; i < 2000; i++)
        one_operation(&random);
    fake_os.refuse_after = 0;
    drop_all();
    page_heap_check();
}

/* Memory of a chunk that is partly used is kept, because that chunk is the next to be filled. */
TEST(empty_chunks_are_given_back_before_others)
{
    bool zero;
    drop_all();
    page_heap_purge(0);
    for (size_t first = 0; first < 2; first++) {
        size_t chunks[2];
        for (size_t i = 0; i < 2; i++) {
            chunks[i] = page_heap_allocate_aligned(CHUNK_SLICES, CHUNK_BYTES, &zero);
            REQUIRE(chunks[i] != 0);
        }
        page_heap_free(chunks[1 - first], CHUNK_SLICES);
        page_heap_free(chunks[first] + 10, CHUNK_SLICES - 10);
        CHECK(page_heap_purge((CHUNK_SLICES - 10) << SLICE_SHIFT) == CHUNK_BYTES);
        CHECK(page_heap_statistics().idle_slices == CHUNK_SLICES - 10);
        page_heap_free(chunks[first], 10);
        page_heap_purge(0);
    }
}

TEST(an_occupied_place_is_skipped_forever)
{
    size_t before = atomic_load(&region.slices);
    struct page_heap_statistics statistics = page_heap_statistics();
    bool zero;
    fake_os.occupied_chunks = 1;
    /* The run is longer than the heap has slices, so the heap must grow. */
    size_t index = page_heap_allocate(before + 4096, 0, &zero);
    REQUIRE(index != 0);
    CHECK(fake_os.occupied_chunks == 0);
    CHECK(page_heap_statistics().grown > statistics.grown);
    CHECK(page_heap_statistics().mapped_slices >= statistics.mapped_slices + 4096);
    page_heap_check();
    page_heap_free(index, before + 4096);
    page_heap_check();
}

/* Slices that are skipped for the alignment stay untouched. */
TEST(an_aligned_run_leaves_the_slices_around_it_untouched)
{
    page_heap_purge(0);
    struct page_heap_level before = page_heap_level();
    bool zero;
    size_t slices = CHUNK_SLICES + 1;
    size_t index = page_heap_allocate_aligned(slices, 8 * CHUNK_BYTES, &zero);
    REQUIRE(index != 0 && zero);
    CHECK((uintptr_t)region_address(index) % (8 * CHUNK_BYTES) == 0);
    struct page_heap_level after = page_heap_level();
    CHECK(after.use.used == before.use.used + slices && after.use.idle == before.use.idle);
    CHECK(after.fresh == before.fresh + slices);
    page_heap_check();
    page_heap_free(index, slices);
}

TEST(requests_beyond_a_limit_return_0)
{
    fake_os.limit_bytes = fake_os.claimed_bytes + (32 << 20);
    bool zero;
    CHECK(page_heap_allocate(atomic_load(&region.slices) + (1 << 14), 0, &zero) == 0);
    size_t index = page_heap_allocate(10, 0, &zero);
    CHECK(index != 0);
    page_heap_free(index, 10);
    index = page_heap_allocate(10, REGION_SLICES_MAX - 11, &zero); /* has no room behind it */
    CHECK(index != 0);
    page_heap_free(index, 10);
    fake_os.limit_bytes = 0;
    CHECK(page_heap_allocate(REGION_SLICES_MAX, 0, &zero) == 0);
    CHECK(page_heap_allocate(0, 0, &zero) == 0);
    CHECK(page_heap_allocate_aligned(0, CHUNK_BYTES, &zero) == 0);
    CHECK(page_heap_allocate_aligned(REGION_SLICES_MAX - 1, CHUNK_BYTES, &zero) == 0);
    CHECK(page_heap_allocate_aligned(1, (size_t)REGION_SLICES_MAX << SLICE_SHIFT, &zero) == 0);
    page_heap_check();
}

/* Frees everything, allocates a run of `slices` and returns it. Also fills all slices below the
 * run. The lowest slice is 1, because the heap never hands out slice 0. */
static size_t take_lowest(size_t slices)
{
    bool zero;
    drop_all();
    page_heap_purge(0);
    size_t index = page_heap_allocate(slices, 0, &zero);
    if (index > 1)
        CHECK(page_heap_allocate(index - 1, 0, &zero) == 1);
    return index;
}

static void drop_lowest(size_t index, size_t slices)
{
    page_heap_free(1, index - 1 + slices);
}

TEST(a_short_run_fills_the_densest_chunk_that_holds_it)
{
    bool zero;
    drop_all();
    page_heap_purge(0);
    size_t dense = page_heap_allocate_aligned(100, CHUNK_BYTES, &zero);
    size_t sparse = page_heap_allocate_aligned(100, CHUNK_BYTES, &zero);
    REQUIRE(dense != 0 && sparse != 0);
    page_heap_free(sparse + 10, 90);
    size_t next = page_heap_allocate(12, 0, &zero);
    CHECK(next == dense + 100);
    page_heap_free(next, 12);
    page_heap_free(dense, 100);
    page_heap_free(sparse, 10);
}

TEST(a_long_run_takes_the_lowest_place_that_fits_also_across_chunks)
{
    enum { LONG = CHUNK_SLICES / 2, SHORT = 3 };
    bool zero;
    size_t first = take_lowest(4 * CHUNK_SLICES);
    REQUIRE(first != 0);
    size_t border = (first / CHUNK_SLICES + 2) * CHUNK_SLICES;
    page_heap_free(border - LONG / 2, LONG);
    CHECK(page_heap_allocate(LONG, 0, &zero) == border - LONG / 2);
    page_heap_free(border - SHORT + 1, SHORT);
    size_t within = page_heap_allocate(SHORT, 0, &zero);
    CHECK(within % CHUNK_SLICES <= CHUNK_SLICES - SHORT);
    page_heap_free(within, SHORT);
    CHECK(page_heap_extend(border - LONG / 2, LONG / 2 - SHORT + 1, SHORT, &zero));
    page_heap_check();
    drop_lowest(first, 4 * CHUNK_SLICES);
}

TEST(a_long_run_begins_at_its_alignment_where_that_fits)
{
    enum { LONG = CHUNK_SLICES + 10, GRAIN = CHUNK_SLICES / 8 };
    bool zero;
    size_t all = take_lowest(4 * CHUNK_SLICES);
    REQUIRE(all != 0);
    size_t place = (all / GRAIN + 2) * GRAIN;
    page_heap_free(place - 3, LONG + 3);
    size_t run = page_heap_allocate(LONG, 0, &zero);
    CHECK(run == place);
    page_heap_free(run, LONG);
    CHECK(page_heap_allocate(LONG + 1, 0, &zero) == place - 3); /* fits at no other place */
    CHECK(page_heap_allocate(2, 0, &zero) == place - 3 + LONG + 1);
    drop_lowest(all, 4 * CHUNK_SLICES);
    page_heap_check();
}

static bool asks(void)
{
    return true;
}

/* Grows the heap by `chunks` chunks in runs of `slices` slices, and frees them, so that they are
 * idle. Returns for how many of them the heap requested a huge page. */
static unsigned grow_in_runs_and_free(size_t chunks, size_t slices)
{
    static size_t indices[300 * CHUNK_SLICES];
    size_t count = chunks * CHUNK_SLICES / slices;
    unsigned before = fake_os.huge_count;
    bool zero;
    for (size_t i = 0; i < count; i++)
        indices[i] = page_heap_allocate(slices, 0, &zero);
    unsigned asked = fake_os.huge_count - before;
    for (size_t i = 0; i < count; i++)
        page_heap_free(indices[i], slices);
    return asked;
}

/* grow_in_runs_and_free() in a process that may ask the kernel which pages are resident. */
static unsigned grow_and_free(size_t chunks)
{
    huge_page_may_ask = asks;
    return grow_in_runs_and_free(chunks, 2);
}

static unsigned asked_while_growing(size_t chunks)
{
    unsigned asked = grow_and_free(chunks);
    page_heap_purge(0);
    return asked;
}

TEST(huge_pages_are_asked_for_while_they_come_quickly)
{
    const struct {
        enum huge_page_use wanted;
        uint64_t huge_touch_ticks;
        unsigned least;
        unsigned most;
    } cases[] = {
        /* Huge pages are quick: one takes less than twice as long as 512 small pages. The heap
         * requests one for each new chunk as soon as the program uses 40 MiB and has grown by 64
         * MiB since the last purge. */
        {HUGE_PAGE_AUTO, 2 * 511 * 1000, 150, 300},
        /* Huge pages are slow: one takes more than twice as long as 512 small pages. The heap
         * pauses the requests for 8, 16, 32, 64 … chunks. */
        {HUGE_PAGE_AUTO, 2 * 513 * 1000, 1, 8},
        {HUGE_PAGE_ALWAYS, 2 * 513 * 1000, 150, 300},
        /* Huge pages are quick again. The requests resume at once. */
        {HUGE_PAGE_AUTO, 2 * 511 * 1000, 150, 300},
    };
    fake_os.small_touch_ticks = 1000;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        huge_page_want(HUGE_PAGE_NEVER); /* also withdraws earlier requests */
        CHECK(asked_while_growing(300) == 0);
        huge_page_want(cases[i].wanted);
        fake_os.huge_touch_ticks = cases[i].huge_touch_ticks;
        unsigned asked = asked_while_growing(300);
        CHECK(asked >= cases[i].least && asked <= cases[i].most);
    }
    huge_page_want(HUGE_PAGE_AUTO);
    fake_os.huge_touch_ticks = fake_os.small_touch_ticks = 0;
}

/* Withdraws all requests for huge pages, and gives back all memory. */
static void begin_with_small_pages(void)
{
    huge_page_want(HUGE_PAGE_NEVER);
    CHECK(asked_while_growing(300) == 0);
    huge_page_want(HUGE_PAGE_AUTO);
}

TEST(huge_pages_are_asked_for_only_if_their_pages_are_touched)
{
    static const struct {
        unsigned resident_of_512;
        unsigned least;
        unsigned most;
    } cases[] = {
        {0, 150, 300},
        {448, 150, 300},   /* seven eighths */
        {447, 0, 300 / 8}, /* those that the samples before have allowed */
        {1, 0, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        begin_with_small_pages();
        fake_os.resident_of_512 = cases[i].resident_of_512;
        unsigned asked = asked_while_growing(300);
        CHECK(asked >= cases[i].least && asked <= cases[i].most);
    }
    fake_os.resident_of_512 = 0;
}

TEST(a_program_that_touches_less_soon_gets_no_more_huge_pages)
{
    enum { BEFORE = 160, AFTER = 140 };
    static size_t indices[(BEFORE + AFTER) * CHUNK_SLICES / 2];
    begin_with_small_pages();
    unsigned asked = fake_os.huge_count;
    bool zero;
    for (size_t i = 0; i < COUNT_OF(indices); i++) {
        if (i == BEFORE * CHUNK_SLICES / 2) {
            CHECK(fake_os.huge_count - asked > 80);
            asked = fake_os.huge_count;
            fake_os.resident_of_512 = 100;
        }
        indices[i] = page_heap_allocate(2, 0, &zero);
    }
    /* An eighth of the chunks in use, and those of the sample that was dense before. */
    CHECK(fake_os.huge_count - asked <= (BEFORE + AFTER) / 8);
    fake_os.resident_of_512 = 0;
    for (size_t i = 0; i < COUNT_OF(indices); i++)
        page_heap_free(indices[i], 2);
    page_heap_check();
}

TEST(without_an_answer_only_slabs_of_one_slice_get_huge_pages)
{
    for (int refused = 0; refused < 2; refused++) {
        begin_with_small_pages();
        page_heap_purge(0);
        huge_page_may_ask = refused ? asks : NULL;
        fake_os.refuses_counts = refused;
        CHECK(grow_in_runs_and_free(300, 2) == 0);
        page_heap_purge(0);
        CHECK(grow_in_runs_and_free(300, 1) > 150);
        fake_os.refuses_counts = false;
    }
    page_heap_purge(0);
}

TEST(new_chunks_are_not_advised_if_the_kernel_gives_no_huge_page_unasked)
{
    begin_with_small_pages();
    unsigned before = fake_os.small_count;
    bool zero;
    size_t slices = atomic_load(&region.slices) + 40 * CHUNK_SLICES;
    size_t run = page_heap_allocate(slices, 0, &zero);
    REQUIRE(run != 0);
    CHECK(fake_os.small_count == before && !huge_page_unasked_is_always());
    CHECK(!chunk_of((run + slices) / CHUNK_SLICES - 1)->forbidden);
    page_heap_free(run, slices);
    page_heap_purge(0);
}

TEST(huge_pages_that_cannot_be_given_back_stay_idle)
{
    huge_page_want(HUGE_PAGE_NEVER);
    CHECK(asked_while_growing(300) == 0);
    huge_page_want(HUGE_PAGE_ALWAYS);
    CHECK(grow_and_free(300) > 150);
    size_t idle = page_heap_statistics().idle_slices;
    CHECK(idle >= (size_t)300 * CHUNK_SLICES);
    fake_os.refuse_after = fake_os.call_count;
    unsigned calls = fake_os.give_back_count;
    CHECK(page_heap_purge(0) == 0 && page_heap_statistics().idle_slices == idle);
    /* After some refusals the purge does not try the rest. */
    CHECK(fake_os.give_back_count - calls < 20);
    fake_os.refuse_after = 0;
    CHECK(page_heap_purge(0) >= idle << SLICE_SHIFT && page_heap_statistics().idle_slices == 0);
    page_heap_check();
    huge_page_want(HUGE_PAGE_AUTO);
}

/* Chunks in use that make the program a large one. They are never dense, because one slice of each
 * is free and untouched. */
enum { MUCH = 22 };
static size_t much[MUCH];

static void become_large(void)
{
    bool zero;
    page_heap_purge(0);
    for (size_t i = 0; i < MUCH; i++)
        much[i] = page_heap_allocate_aligned(CHUNK_SLICES - 1, CHUNK_BYTES, &zero);
}

static void become_small(void)
{
    for (size_t i = 0; i < MUCH; i++)
        page_heap_free(much[i], CHUNK_SLICES - 1);
    page_heap_purge(0);
}

/* Calls page_heap_look() up to `looks` times, until page_heap_take_dense() returns a chunk. Returns
 * this chunk, or NULL. */
static void *dense_within(int looks)
{
    void *found = page_heap_take_dense(&(size_t){0});
    for (int i = 0; i < looks && found == NULL; i++) {
        page_heap_look();
        found = page_heap_take_dense(&(size_t){0});
    }
    return found;
}

TEST(a_chunk_that_was_dense_at_two_looks_is_reported_once)
{
    bool zero;
    drop_all();
    page_heap_purge(0);
    become_large();
    CHECK(dense_within(3) == NULL);
    size_t index = page_heap_allocate_aligned(CHUNK_SLICES, CHUNK_BYTES, &zero);
    REQUIRE(index != 0);
    page_heap_look();
    CHECK(page_heap_take_dense(&(size_t){0}) == NULL);
    page_heap_look();
    CHECK(page_heap_take_dense(&(size_t){0}) == region_address(index));
    CHECK(dense_within(3) == NULL);
    page_heap_put_dense(region_address(index), false);
    page_heap_look();
    CHECK(page_heap_take_dense(&(size_t){0}) == NULL);
    CHECK(dense_within(1) == region_address(index));

    /* Slices that are free but resident do not make a chunk sparse. Slices that were given back
     * do. */
    page_heap_free(index + 1, CHUNK_SLICES - 1);
    page_heap_put_dense(region_address(index), false);
    CHECK(dense_within(2) == region_address(index));
    page_heap_purge(0);
    CHECK(dense_within(3) == NULL);
    page_heap_free(index, 1);
    become_small();
    page_heap_check();
}

TEST(a_chunk_can_be_dense_again_after_the_run_that_reached_into_it_is_freed)
{
    bool zero;
    become_large();
    size_t first = page_heap_allocate_aligned(3 * CHUNK_SLICES, CHUNK_BYTES, &zero);
    REQUIRE(first != 0);
    size_t second = first + CHUNK_SLICES, third = second + CHUNK_SLICES;
    CHECK(dense_within(3) == region_address(first));
    /* The second and the third chunk belong to a run that begins in the first one. */
    CHECK(dense_within(3) == NULL);

    page_heap_free(second + 10, 2 * CHUNK_SLICES - 10);
    /* The second chunk still begins with slices of this run. */
    CHECK(dense_within(3) == NULL);
    page_heap_free(second, 10);
    size_t again = page_heap_allocate_aligned(2 * CHUNK_SLICES, CHUNK_BYTES, &zero);
    REQUIRE(again == second);
    CHECK(dense_within(3) == region_address(second));
    page_heap_free(second, CHUNK_SLICES + 10);
    /* The rest of the run begins in the third chunk. */
    CHECK(dense_within(3) == region_address(third));

    page_heap_free(third + 10, CHUNK_SLICES - 10);
    again = page_heap_allocate_aligned(2 * CHUNK_SLICES, CHUNK_BYTES, &zero);
    REQUIRE(again == second);
    page_heap_put_dense(region_address(third), false);
    page_heap_free(second, CHUNK_SLICES);
    /* The run was freed up to the end of the second chunk, so the rest begins in the third one. */
    CHECK(dense_within(3) == region_address(third));
    page_heap_free(third, CHUNK_SLICES);
    page_heap_free(first, CHUNK_SLICES);
    become_small();
    page_heap_check();
}

TEST(a_run_that_grows_at_the_limit_takes_the_place_of_idle_memory)
{
    page_heap_purge(0);
    bool zero;
    size_t other = page_heap_allocate(400, 0, &zero);
    size_t run = page_heap_allocate(100, 50, &zero);
    REQUIRE(run != 0 && other != 0);
    page_heap_free(other, 400);
    struct page_heap_statistics now = page_heap_statistics();
    size_t limit = now.used_slices + now.idle_slices;
    page_heap_limit(limit * SLICE_BYTES);
    REQUIRE(page_heap_extend(run, 100, 50, &zero) && zero);
    now = page_heap_statistics();
    CHECK(now.used_slices + now.idle_slices <= limit);
    page_heap_limit(0);
    page_heap_free(run, 150);
    page_heap_check();
}

/* The fourth slice of each OS page was never used. */
TEST(a_free_os_page_of_several_slices_is_given_back_if_one_of_them_is_clean)
{
    enum { COUNT = 100, PAGE = 1 << 16 };
    size_t starts[COUNT];
    bool zero;
    fake_os.page_bytes = PAGE;
    page_heap_purge(0);
    size_t before = page_heap_statistics().idle_slices;
    for (unsigned i = 0; i < COUNT; i++)
        REQUIRE((starts[i] = page_heap_allocate_aligned(3, PAGE, &zero)) != 0 && zero);
    for (unsigned i = 0; i < COUNT; i++)
        page_heap_free(starts[i], 3);
    page_heap_purge(0);
    CHECK(page_heap_statistics().idle_slices <= before);

    /* Pages without a dirty slice are not resident, so they are not given back. */
    size_t page = page_heap_allocate_aligned(PAGE / SLICE_BYTES, PAGE, &zero);
    REQUIRE(page != 0);
    chunk_of(page / CHUNK_SLICES)->huge = false;
    page_heap_free(page, PAGE / SLICE_BYTES);
    CHECK(page_heap_purge(0) == PAGE);
    fake_os.page_bytes = 0;
    page_heap_check();
}

TEST(a_long_run_of_a_small_program_withdraws_requests_for_huge_pages)
{
    enum { CHUNKS = 100 };
    bool zero;
    huge_page_want(HUGE_PAGE_NEVER);
    asked_while_growing(2 * CHUNKS);
    huge_page_want(HUGE_PAGE_ALWAYS);
    CHECK(asked_while_growing(2 * CHUNKS) > CHUNKS);

    become_large();
    unsigned before = fake_os.small_count;
    size_t run = page_heap_allocate(CHUNKS * CHUNK_SLICES, 0, &zero);
    REQUIRE(run != 0);
    CHECK(fake_os.small_count == before);
    page_heap_free(run, CHUNKS * CHUNK_SLICES);
    become_small();

    run = page_heap_allocate(CHUNKS * CHUNK_SLICES, 0, &zero);
    REQUIRE(run != 0);
    CHECK(fake_os.small_count > before + CHUNKS / 2);
    page_heap_free(run, CHUNKS * CHUNK_SLICES);
    page_heap_purge(0);
    huge_page_want(HUGE_PAGE_AUTO);
}

TEST(no_chunk_of_a_small_program_is_dense)
{
    bool zero;
    size_t index = page_heap_allocate_aligned(CHUNK_SLICES, CHUNK_BYTES, &zero);
    REQUIRE(index != 0);
    CHECK(dense_within(3) == NULL);
    become_large();
    page_heap_look();
    become_small();
    /* No chunk is dense in a small program, so the look before does not count any more. */
    CHECK(dense_within(3) == NULL);
    become_large();
    CHECK(dense_within(1) == NULL);
    CHECK(dense_within(1) == region_address(index));
    page_heap_free(index, CHUNK_SLICES);
    become_small();
}

TEST(no_chunk_is_dense_where_huge_pages_are_not_wanted)
{
    bool zero;
    become_large();
    size_t index = page_heap_allocate_aligned(CHUNK_SLICES, CHUNK_BYTES, &zero);
    REQUIRE(index != 0);
    huge_page_want(HUGE_PAGE_NEVER);
    CHECK(dense_within(3) == NULL);
    huge_page_want(HUGE_PAGE_AUTO);
    CHECK(dense_within(2) != NULL);
    page_heap_free(index, CHUNK_SLICES);
    become_small();
}

/* Runs epochs of some milliseconds until the allocator asks the kernel for a huge page. Returns the
 * number of these epochs, or 0 if 200 were not enough. */
static unsigned epochs_until_asked(void)
{
    unsigned before = fake_os.collapse_count;
    for (unsigned epoch = 1; epoch <= 200; epoch++) {
        for (uint64_t end = ticks_now() + (1 << 22); ticks_now() < end;)
            continue;
        huge_page_collapse_epoch();
        if (fake_os.collapse_count != before)
            return epoch;
    }
    return 0;
}

TEST(after_each_refused_huge_page_the_next_request_waits_longer)
{
    bool zero;
    become_large();
    size_t index = page_heap_allocate_aligned(CHUNK_SLICES, CHUNK_BYTES, &zero);
    REQUIRE(index != 0);
    fake_os.refuses_collapse = true;
    unsigned longest = 0;
    /* The first two looks at the chunk are not part of the wait. */
    for (unsigned wait = 1; wait <= 64; wait *= 2) {
        longest = epochs_until_asked();
        CHECK(longest >= 2 && longest > wait / 2 && longest <= 20 + wait);
    }
    fake_os.refuses_collapse = false;
    CHECK(epochs_until_asked() > longest);
    CHECK(epochs_until_asked() == 0);
    page_heap_free(index, CHUNK_SLICES);
    become_small();
}

TEST(a_chunk_of_slabs_with_untouched_pages_is_not_collapsed)
{
    bool zero;
    become_large();
    size_t index = page_heap_allocate_aligned(CHUNK_SLICES, CHUNK_BYTES, &zero);
    REQUIRE(index != 0);
    for (size_t i = 0; i < CHUNK_SLICES; i++) {
        struct slab *slab = slab_create(index + i, size_class(64), NULL, zero);
        uint32_t count;
        while (slab_carve(slab, &count) != NULL)
            continue;
    }
    struct slab *some = slab_at(index + 5);
    enum { SPARSE = CHUNK_SLICES / 32 + 1 };
    /* One OS page of each of these slabs is not carved. SPARSE is one slab more than the
     * thirty-second of a chunk that may be untouched. */
    for (size_t i = 0; i < SPARSE; i++)
        atomic_store(&some[i].carved, (uint16_t)((SLICE_BYTES - os_page_bytes()) / 64));
    CHECK(epochs_until_asked() == 0);
    atomic_store(&some[0].carved, SLICE_BYTES / 64);
    CHECK(epochs_until_asked() > 0);

    page_heap_put_dense(region_address(index), false);
    atomic_store(&some[0].kind, RUN_LARGE);
    CHECK(epochs_until_asked() == 0);
    atomic_store(&some[0].kind, RUN_SLAB);
    CHECK(epochs_until_asked() > 0);
    for (size_t i = 0; i < CHUNK_SLICES; i++)
        slab_destroy(slab_at(index + i));
    page_heap_free(index, CHUNK_SLICES);
    become_small();
}

TEST(a_large_block_that_may_be_untouched_is_not_collapsed)
{
    bool zero;
    enum { CHUNKS = 4 };
    become_large();
    char *block = large_allocate((size_t)CHUNKS * CHUNK_BYTES, 1, &zero);
    REQUIRE(block != NULL);
    struct slab *slab = slab_at(region_index(block));
    CHECK(epochs_until_asked() == 0);
    CHECK(large_resize(slab, (size_t)(CHUNKS - 1) * CHUNK_BYTES));
    CHECK(large_resize(slab, (size_t)(CHUNKS + 1) * CHUNK_BYTES));
    CHECK(epochs_until_asked() == 0);
    large_free(slab);
    become_small();
}

TEST(bitmaps_find_runs)
{
    struct random random = random_of(seed + 2);
    for (int i = 0; i < 8000; i++) {
        bitmap_wide map =
            (bitmap_wide)(random_next(&random) & random_next(&random)) << 64 | random_next(&random);
        if (i % 3 == 0)
            map |= bitmap_run((unsigned)random_below(&random, 64),
                              1 + (unsigned)random_below(&random, 64));
        unsigned longest = 0;
        unsigned run = 0;
        for (unsigned bit = 0; bit < BITMAP_BITS; bit++) {
            run = map >> bit & 1 ? run + 1 : 0;
            longest = run > longest ? run : longest;
        }
        CHECK(bitmap_longest(map) == longest);
        for (unsigned count = 1; count <= BITMAP_BITS; count += 1 + count / 4) {
            bitmap_wide starts = bitmap_starts(map, count);
            CHECK((starts != 0) == (count <= longest));
            if (starts != 0)
                CHECK((map & bitmap_run(bitmap_lowest(starts), count)) ==
                      bitmap_run(bitmap_lowest(starts), count));
        }
    }
}

int main(int argc, char **argv)
{
    if (getenv("SEED") != NULL)
        seed = strtoull(getenv("SEED"), NULL, 10);
    printf("seed %llu; set SEED=… to repeat another\n", (unsigned long long)seed);
    return test_main(argc, argv);
}
