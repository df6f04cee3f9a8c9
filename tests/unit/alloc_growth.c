/* alloc_growth.c - tests that idle memory goes back when a large block would make the process
 * larger than ever before, and that a program which repeats its requests keeps its memory. */
#include "alloc/alloc.h"

#include "alloc/page_heap.h"
#include "alloc/purge.h"
#include "alloc_os.h"
#include "test.h"

#define MIB ((size_t)1 << 20)

enum { ROUNDS = 40 };

static size_t resident(void)
{
    struct page_heap_use use = page_heap_level().use;
    return (use.used + use.idle) << SLICE_SHIFT;
}

/* Allocates a block, frees it, and allocates two blocks of half its size. They do not both fit into
 * its place, because a large block consists of whole slices. Stores what is resident with the one
 * block and with the two. */
static void in_halves(size_t bytes, size_t *whole, size_t *halves)
{
    void *block = alloc_malloc(bytes + 32);
    *whole = resident();
    alloc_free(block);
    void *one = alloc_malloc(bytes / 2 + 32);
    void *other = alloc_malloc(bytes / 2 + 32);
    REQUIRE(block != NULL && one != NULL && other != NULL);
    *halves = resident();
    alloc_free(one);
    alloc_free(other);
    heap_collect(thread_own_heap());
}

/* GNU sort does this: it sorts in one large block, and merges with two of half its size. */
TEST(two_halves_of_a_freed_block_take_no_more_memory_than_the_block)
{
    alloc_free(alloc_malloc(16));
    for (size_t bytes = 16 * MIB; bytes <= 256 * MIB; bytes *= 4) {
        size_t whole, halves;
        in_halves(bytes, &whole, &halves);
        CHECK(halves <= whole + MIB);
        page_heap_check();
    }
}

TEST(a_program_that_repeats_its_requests_soon_keeps_its_memory)
{
    size_t whole, halves, fresh = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (round == ROUNDS / 2)
            fresh = page_heap_level().fresh;
        in_halves(64 * MIB, &whole, &halves);
    }
    CHECK(page_heap_level().fresh == fresh);
    page_heap_check();
}

/* Short blocks are frequent, and idle memory is soon needed again. */
TEST(a_short_block_gives_nothing_back)
{
    void *block = alloc_malloc(64 * MIB);
    alloc_free(block);
    size_t before = page_heap_statistics().purged_bytes;
    size_t idle = page_heap_level().use.idle;
    REQUIRE(idle >= 64 * MIB >> SLICE_SHIFT);
    purge_for_growth(PURGE_GROWTH_SLICES - 1);
    CHECK(page_heap_statistics().purged_bytes == before);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
