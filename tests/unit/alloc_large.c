/* alloc_large.c - tests large blocks that grow: their pages move instead of being copied, and the
 * process stays below the kernel's limit on mappings. */
#include "alloc/large.h"

#include "alloc/alloc.h"
#include "alloc/chunk.h"
#include "alloc/huge_page_timing.h"
#include "alloc/huge_page_unasked.h"
#include "alloc/page_heap.h"
#include "alloc/stats.h"
#include "alloc_os.h"
#include "base/ticks.h"
#include "test.h"

#define MIB     ((size_t)1 << 20)
#define QUARTER (MIB / 4)

enum {
    MANY = 1100,
/* The thread sanitizer makes at least one mapping of its own for each mapping of the allocator. */
#ifdef __SANITIZE_THREAD__
    MAPPINGS_MAX = 60000,
#else
    MAPPINGS_MAX = 5000,
#endif
};

static unsigned char *blocks[MANY];

static unsigned mappings(void)
{
    unsigned count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    for (int c; maps != NULL && (c = fgetc(maps)) != EOF;)
        count += c == '\n';
    if (maps != NULL)
        fclose(maps);
    return count;
}

static void write_ends(unsigned i, size_t size)
{
    blocks[i][0] = blocks[i][size - 1] = (unsigned char)i;
}

static bool has_ends(unsigned i, size_t size)
{
    return blocks[i][0] == (unsigned char)i && blocks[i][size - 1] == (unsigned char)i;
}

static void touch(char *block, size_t size)
{
    for (size_t at = 0; at < size; at += 64)
        block[at] = 1;
}

/* Allocates and frees a block in the same place until the allocator collapses one of its chunks
 * into a huge page. Returns the number of allocations until then, or 0 if 40 were not enough. */
static unsigned times_until_collapsed(bool touched)
{
    enum { BYTES = 2 * CHUNK_BYTES }; /* covers a whole chunk wherever it begins */
    unsigned before = fake_os.collapse_count;
    for (unsigned time = 1; time <= 40; time++) {
        char *block = alloc_malloc(BYTES);
        if (block == NULL)
            return 0;
        block[0] = 1;
        if (touched)
            touch(block, BYTES);
        alloc_free(block);
        if (fake_os.collapse_count != before)
            return time;
        for (uint64_t end = ticks_now() + (1 << 18); ticks_now() < end;)
            continue;
    }
    return 0;
}

/* This must be the first test: the allocator has not yet requested huge or small pages for any
 * chunk. */
TEST(a_chunk_that_is_reused_by_large_blocks_becomes_a_huge_page)
{
    CHECK(times_until_collapsed(false) == 0);
    page_heap_purge(0);
    CHECK(times_until_collapsed(true) > 2);
    fake_os.collapse_count = 0;
    CHECK(times_until_collapsed(true) == 0); /* a chunk is collapsed only once */
    page_heap_purge(0);
    huge_page_want(HUGE_PAGE_NEVER);
    CHECK(times_until_collapsed(true) == 0);
    huge_page_want(HUGE_PAGE_AUTO);
    page_heap_purge(0);
}

/* There are more blocks than may have a mapping of their own. The allocator copies the blocks
 * beyond that number when they grow. */
TEST(many_growing_blocks_keep_their_contents_and_need_few_mappings)
{
    unsigned before = mappings();
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < MANY; i++) {
            blocks[i] = alloc_malloc(MIB);
            REQUIRE(blocks[i] != NULL);
            write_ends(i, MIB);
        }
        for (unsigned i = 0; i < MANY; i++) {
            blocks[i] = alloc_realloc(blocks[i], 5 * QUARTER);
            REQUIRE(blocks[i] != NULL && has_ends(i, MIB));
            CHECK(alloc_usable_size(blocks[i]) >= 5 * QUARTER);
            write_ends(i, 5 * QUARTER);
        }
        CHECK(mappings() < before + MAPPINGS_MAX);
        page_heap_check();
        /* Each block grows, in place if possible, and then shrinks. */
        for (unsigned i = 0; i < MANY; i++) {
            blocks[i] = alloc_realloc(blocks[i], 6 * QUARTER);
            REQUIRE(blocks[i] != NULL && has_ends(i, 5 * QUARTER));
            blocks[i] = alloc_realloc(blocks[i], 2 * QUARTER);
            REQUIRE(blocks[i] != NULL);
            write_ends(i, 2 * QUARTER);
        }
        for (unsigned i = 0; i < MANY; i++) {
            CHECK(has_ends(i, 2 * QUARTER));
            alloc_free(blocks[i]);
        }
        page_heap_purge(0);
        page_heap_check();
    }
    CHECK(mappings() < before + MAPPINGS_MAX);
}

TEST(memory_whose_pages_were_moved_away_reads_as_zero)
{
    for (unsigned i = 0; i < 100; i++) {
        blocks[i] = alloc_malloc(MIB + i * SLICE_BYTES);
        REQUIRE(blocks[i] != NULL);
        memset(blocks[i], 0xff, MIB);
    }
    for (unsigned i = 0; i < 100; i++)
        blocks[i] = alloc_realloc(blocks[i], 4 * MIB);
    for (unsigned i = 0; i < 100; i++) {
        unsigned char *fresh = alloc_calloc(1, MIB);
        REQUIRE(fresh != NULL);
        CHECK(fresh[0] == 0 && memcmp(fresh, fresh + 1, MIB - 1) == 0);
        CHECK(blocks[i] != NULL && blocks[i][0] == 0xff && blocks[i][MIB - 1] == 0xff);
        alloc_free(blocks[i]);
        blocks[i] = fresh;
    }
    for (unsigned i = 0; i < 100; i++)
        alloc_free(blocks[i]);
    page_heap_check();
}

/* Slack is slices in a block that the program did not request. A block has slack only if it lies in
 * a longer run that the thread had kept. A block that was resized has exactly the requested
 * slices. */
TEST(a_resized_block_gives_back_the_slices_that_it_leaves)
{
    /* The realloc leaves 8 MiB of free memory behind the block, so that the block can grow in
     * place. */
    char *block = alloc_realloc(alloc_malloc(12 * MIB), 4 * MIB);
    REQUIRE(block != NULL);
    size_t before = alloc_usable_size(block);
    CHECK(alloc_realloc(block, 4 * MIB + 5 * SLICE_BYTES) == block);
    CHECK(alloc_usable_size(block) == before + 5 * SLICE_BYTES);
    CHECK(alloc_realloc(block, 4 * MIB + 4 * SLICE_BYTES) == block);
    CHECK(alloc_usable_size(block) == before + 4 * SLICE_BYTES);
    CHECK(alloc_realloc(block, 4 * MIB + 3 * SLICE_BYTES) == block);
    CHECK(alloc_usable_size(block) == before + 3 * SLICE_BYTES);
    alloc_free(block);
}

/* The kernel refuses to lengthen the block, and in most cases also to move it. Half of the refused
 * calls to lengthen it also unmap the memory behind it. */
TEST(a_block_whose_mapping_cannot_grow_leaves_no_hole_behind_it)
{
    for (unsigned i = 0; i <= 8; i++) {
        blocks[i] = alloc_malloc(MIB);
        REQUIRE(blocks[i] != NULL);
        memset(blocks[i], 0xff, MIB);
    }
    fake_os.losing = true;
    for (unsigned i = 0; i < 8; i++) {
        /* The block cannot grow in place, because the next block lies directly behind it. */
        blocks[i] = alloc_realloc(blocks[i], 4 * MIB);
        REQUIRE(blocks[i] != NULL);
        fake_os.refuse_call = fake_os.call_count + 1;
        fake_os.refuse_more = i % 3 != 0; /* in two of three cases, the move is refused, too */
        blocks[i] = alloc_realloc(blocks[i], 5 * MIB);
        REQUIRE(blocks[i] != NULL);
        CHECK(blocks[i][0] == 0xff && blocks[i][MIB - 1] == 0xff);
        fake_os.refuse_call = 0;
        fake_os.refuse_more = 0;
    }
    fake_os.losing = false;
    CHECK(fake_os.behind_lost > 0);
    struct cairn_stats stats;
    stats_gather(&stats);
    CHECK(stats.own_bytes >= MIB); /* at least what was lost behind one block */
    CHECK(stats.live_bytes + stats.cached_bytes + stats.free_bytes + stats.fresh_bytes +
              stats.slack_bytes + stats.own_bytes ==
          stats.used_bytes);
    /* These blocks are short enough to lie in any memory that the refused calls have unmapped. */
    for (unsigned i = 9; i < MANY; i++) {
        blocks[i] = alloc_calloc(1, 3 * SLICE_BYTES);
        REQUIRE(blocks[i] != NULL);
        CHECK(blocks[i][0] == 0 && memcmp(blocks[i], blocks[i] + 1, 3 * SLICE_BYTES - 1) == 0);
        memset(blocks[i], 0xff, 3 * SLICE_BYTES);
    }
    for (unsigned i = 0; i < MANY; i++)
        alloc_free(blocks[i]);
    page_heap_purge(0);
    page_heap_check();
}

/* Frees a moved block of 4 MiB while the kernel refuses to renew its memory. `expected` of its
 * slices must be lost. */
static void check_refused_renewal(size_t expected)
{
    struct block *block = alloc_realloc(alloc_malloc(64 * MIB), 2 * MIB); /* in one mapping */
    REQUIRE(block != NULL);
    block = large_move(slab_of(block), 4 * MIB);
    REQUIRE(block != NULL);
    size_t index = slab_index(slab_of(block));
    size_t slices = slab_of(block)->slices;
    heap_collect(thread_own_heap());
    size_t used = page_heap_statistics().used_slices;
    alloc_free(block);
    fake_os.refuse_call = fake_os.call_count + 1;
    heap_collect(thread_own_heap()); /* if the heap keeps the block's run, gives it back */
    fake_os.refuse_call = 0;
    size_t lost = 0;
    for (size_t i = 0; i < slices; i++)
        lost += slab_at(index + i)->kind == RUN_LOST;
    CHECK(slices == 4 * MIB / SLICE_BYTES && lost == expected);
    CHECK(page_heap_statistics().used_slices == used - slices + lost);
    page_heap_check();
}

/* Linux before 6.12 unmaps memory before it finds that it has none for the new mapping. */
TEST(memory_of_a_moved_block_that_was_unmapped_is_not_handed_out_again)
{
    fake_os.losing = true;
    check_refused_renewal(4 * MIB / SLICE_BYTES);
    fake_os.losing = false;
}

static bool yes(void)
{
    return true;
}

/* The kernel refuses a new mapping of locked memory at its limit, and leaves the memory mapped. */
TEST(memory_of_a_moved_block_that_stays_mapped_is_reused)
{
    unsigned before = fake_os.counts;
    huge_page_may_ask = yes;
    check_refused_renewal(0);
    huge_page_may_ask = NULL;
    CHECK(fake_os.counts == before + 1);
}

static bool others_got_memory;

static void allocate_while_moving(void)
{
    bool zero;
    size_t run = page_heap_allocate(2, 0, &zero);
    others_got_memory = run != 0;
    if (run != 0)
        page_heap_free(run, 2);
}

/* The pages of a moved block exist once, so they do not count twice. */
TEST(at_the_limit_a_block_moves_if_there_is_room_for_what_it_grows_by)
{
    unsigned char *block = alloc_malloc(800 * MIB);
    REQUIRE(block != NULL);
    /* The kernel moves one mapping at a time. Requests for huge pages, which depend on the time of
     * the first touch, may have divided the memory into several ones. */
    REQUIRE(os_renew(block, 800 * MIB));
    block[0] = block[800 * MIB - 1] = 7;
    struct page_heap_statistics now = page_heap_statistics();
    page_heap_limit((now.used_slices << SLICE_SHIFT) + 2 * MIB);
    struct slab *slab = slab_of((struct block *)block);
    CHECK(large_move(slab, 803 * MIB) == NULL);
    CHECK(page_heap_statistics().used_slices == now.used_slices);
    fake_os.while_moving = allocate_while_moving;
    unsigned char *moved = large_move(slab, 801 * MIB);
    fake_os.while_moving = NULL;
    page_heap_limit(0);
    REQUIRE(moved != NULL);
    CHECK(others_got_memory);
    CHECK(page_heap_statistics().used_slices == now.used_slices + MIB / SLICE_BYTES);
    CHECK(moved[0] == 7 && moved[800 * MIB - 1] == 7);
    CHECK(page_heap_statistics().used_most < now.used_most + 2 * MIB / SLICE_BYTES);
    alloc_free(moved);
    page_heap_check();
}

/* Requests huge pages for all free chunks, as the allocator does while a large program grows. */
static void want_huge_pages(void)
{
    enum { SPARE = 64 }; /* MiB */
    alloc_free(alloc_malloc(SPARE * MIB));
    heap_collect(thread_own_heap());
    page_heap_purge(0);
    for (size_t number = 1; number < region.slices / CHUNK_SLICES; number++) {
        struct chunk *chunk = chunk_of(number);
        if (chunk->used_count > 0 || free_map.chunks[number].longest == 0) /* not free */
            continue;
        os_want_huge_pages(region_address(number * CHUNK_SLICES), CHUNK_BYTES);
        chunk->huge = true;
        chunk->small = false;
    }
}

/* Returns the number of chunks for which the allocator has noted a request for huge or small
 * pages. */
static unsigned requests(void)
{
    unsigned count = 0;
    for (size_t number = 1; number < region.slices / CHUNK_SLICES; number++)
        count += chunk_of(number)->huge || chunk_of(number)->small;
    return count;
}

/* A kernel that refuses to move or grow a block may first unmap the memory at the target. The
 * allocator then maps that memory anew, and its earlier requests for huge or small pages are
 * lost. */
TEST(memory_that_is_mapped_anew_after_a_refusal_has_no_request_for_its_pages)
{
    struct block *block = alloc_realloc(alloc_malloc(64 * MIB), 4 * MIB); /* in one mapping */
    REQUIRE(block != NULL);
    want_huge_pages();
    unsigned before = requests();
    REQUIRE(before > 8);
    fake_os.refuses_moves = true;
    CHECK(large_move(slab_of(block), 8 * MIB) == NULL);
    CHECK(requests() <= before - 8 * MIB / CHUNK_BYTES);
    fake_os.refuses_moves = false;

    block = large_move(slab_of(block), 4 * MIB + SLICE_BYTES);
    REQUIRE(block != NULL && slab_of(block)->moved);
    want_huge_pages();
    before = requests();
    fake_os.refuses_moves = true;
    CHECK(!large_resize(slab_of(block), 8 * MIB));
    CHECK(requests() < before);
    fake_os.refuses_moves = false;
    alloc_free(block);
    heap_collect(thread_own_heap());
    page_heap_check();
}

static bool no(void)
{
    return false;
}

/* A sandbox may kill the process for mincore(2), which was once called here: with the archive,
 * which sets no huge_page_may_ask(), and in a sandbox with CAIRN_MOVE=1. */
TEST(memory_of_a_moved_block_is_not_looked_at_if_a_sandbox_may_forbid_it)
{
    unsigned before = fake_os.counts;
    check_refused_renewal(4 * MIB / SLICE_BYTES);
    huge_page_may_ask = no;
    large_may_move = yes;
    check_refused_renewal(4 * MIB / SLICE_BYTES);
    huge_page_may_ask = NULL;
    large_may_move = NULL;
    CHECK(fake_os.counts == before);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
