/* alloc_unasked.c - tests the advice for machines whose kernel gives huge pages unasked
 * (huge_page_unasked.h). The tests run in their order, in one process. */
#include "alloc/huge_page_unasked.h"
#include "alloc/page_heap.h"

#include "alloc/chunk.h"
#include "alloc_os.h"
#include "test.h"

enum { FIRST = 4 }; /* chunks that are always advised */

static unsigned asked; /* number of calls of ask() */

static bool ask(void)
{
    asked++;
    return true;
}

/* Returns how many chunks from number `first` on are advised to have small pages. */
static size_t forbidden_from(size_t first)
{
    size_t count = 0;
    for (size_t number = first; number < chunk_end(); number++)
        count += chunk_of(number)->forbidden;
    return count;
}

TEST(the_first_chunks_are_advised_without_a_look_at_the_setting)
{
    huge_page_may_ask = ask;
    fake_os.gives_unasked = true;
    bool zero;
    while (chunk_end() < FIRST)
        REQUIRE(page_heap_allocate(CHUNK_SLICES / 2, 0, &zero) != 0);
    CHECK(chunk_end() == FIRST && forbidden_from(0) == FIRST);
    CHECK(asked == 0 && fake_os.small_count > 0 && fake_os.huge_count == 0);
}

TEST(later_chunks_are_advised_if_the_setting_is_always)
{
    bool zero;
    while (chunk_end() == FIRST)
        REQUIRE(page_heap_allocate(CHUNK_SLICES / 2, 0, &zero) != 0);
    CHECK(asked > 0 && huge_page_unasked_is_always());
    CHECK(forbidden_from(FIRST) == chunk_end() - FIRST);
}

/* Returns how many whole chunks of a run may have huge pages. */
static size_t huge_in(size_t index, size_t slices)
{
    size_t count = 0;
    for (size_t number = (index + CHUNK_SLICES - 1) / CHUNK_SLICES;
         number < (index + slices) / CHUNK_SLICES; number++)
        count += chunk_of(number)->huge && !chunk_of(number)->forbidden;
    return count;
}

TEST(a_run_of_4_mib_may_have_huge_pages_while_it_is_in_use)
{
    bool zero;
    unsigned before = fake_os.huge_count;
    size_t shorter = page_heap_allocate(2 * CHUNK_SLICES - 1, 0, &zero);
    CHECK(huge_in(shorter, 2 * CHUNK_SLICES - 1) == 0 && fake_os.huge_count == before);
    size_t length = 3 * CHUNK_SLICES + CHUNK_SLICES / 2;
    size_t run = page_heap_allocate(length, 0, &zero);
    CHECK(huge_in(run, length) >= 2 && fake_os.huge_count == before + 1);
    CHECK(fake_os.huge_bytes == length << SLICE_SHIFT);

    unsigned small = fake_os.small_count;
    page_heap_free(run, length);
    CHECK(huge_in(run, length) == 0 && fake_os.small_count == small + 1);
    CHECK(page_heap_allocate(length, 0, &zero) == run);
    CHECK(huge_in(run, length) >= 2 && fake_os.huge_count == before + 2);

    /* A new mapping has no advice. So it is advised again to have small pages. */
    page_heap_free_clean(run, length, true);
    CHECK(huge_in(run, length) == 0 && fake_os.small_count == small + 2);
    page_heap_check();
}

TEST(a_run_that_grows_to_4_mib_gets_the_advice_of_a_long_run)
{
    bool zero;
    size_t run = page_heap_allocate(CHUNK_SLICES, 2 * CHUNK_SLICES, &zero);
    unsigned before = fake_os.huge_count;
    REQUIRE(page_heap_extend(run, CHUNK_SLICES, CHUNK_SLICES / 2, &zero));
    CHECK(fake_os.huge_count == before);
    REQUIRE(page_heap_extend(run, CHUNK_SLICES + CHUNK_SLICES / 2, CHUNK_SLICES, &zero));
    CHECK(fake_os.huge_count == before + 1);
    CHECK(fake_os.huge_bytes == (2 * CHUNK_SLICES + CHUNK_SLICES / 2) << SLICE_SHIFT);
}

TEST(a_program_of_less_than_40_mib_may_request_huge_pages)
{
    bool zero;
    unsigned before = fake_os.huge_count;
    while (chunk_end() < 18)
        REQUIRE(page_heap_allocate(2, 0, &zero) != 0);
    CHECK(!page_heap_is_large());
    CHECK(fake_os.huge_count - before >= 4);
}

TEST(a_chunk_is_allowed_to_have_a_huge_page_before_it_is_collapsed)
{
    size_t number = 1;
    while (!chunk_of(number)->forbidden)
        number++;
    void *start = region_address(number * CHUNK_SLICES);
    CHECK(page_heap_allow_huge(start));
    CHECK(chunk_of(number)->huge && !chunk_of(number)->forbidden);
    unsigned before = fake_os.huge_count;
    CHECK(!page_heap_allow_huge(start) && fake_os.huge_count == before);
    page_heap_put_dense(start, true);
    CHECK(!chunk_of(number)->huge && chunk_of(number)->forbidden);
}

TEST(pages_get_the_advice_of_the_run_that_they_move_to_before_they_move)
{
    bool zero;
    size_t other = page_heap_allocate(CHUNK_SLICES / 2, 0, &zero);
    unsigned before = fake_os.huge_count;
    size_t short_run = page_heap_begin_move(other, CHUNK_SLICES / 2, CHUNK_SLICES);
    CHECK(short_run != 0 && fake_os.huge_count == before);
    size_t long_run = page_heap_begin_move(other, CHUNK_SLICES / 2, 2 * CHUNK_SLICES);
    CHECK(long_run != 0 && fake_os.huge_count == before + 2);
    CHECK(fake_os.huge_bytes == CHUNK_SLICES / 2 << SLICE_SHIFT);
    page_heap_free(short_run, CHUNK_SLICES);
    page_heap_free(long_run, 2 * CHUNK_SLICES);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
