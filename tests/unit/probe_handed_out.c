/* probe_handed_out.c - tests the record of handed-out memory against a model of one byte per
 * granule. */
#include "probe/handed_out.h"

#include "base/random.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

enum { GRANULE = 16, SPAN = 4 << 20 };

/* Unused addresses: the record never accesses them. The span crosses the border between two leaves
 * of the record, which each cover 2^HANDED_OUT_LEAF_SHIFT bytes. */
static const uintptr_t base = (UINT64_C(5) << HANDED_OUT_LEAF_SHIFT) - SPAN / 2;
static bool noted[SPAN / GRANULE];

static void model_note(uintptr_t offset, size_t bytes)
{
    memset(&noted[offset / GRANULE], 1, (bytes + GRANULE - 1) / GRANULE);
}

static size_t random_size(struct random *random)
{
    switch (random_below(random, 8)) {
    case 0:
        return 1 + (size_t)random_below(random, 300000);
    case 1:
        return 1 + (size_t)random_below(random, 20000);
    default:
        return 1 + (size_t)random_below(random, 500);
    }
}

static bool page_noted(size_t page)
{
    for (size_t i = page * 4096 / GRANULE; i < (page + 1) * 4096 / GRANULE; i++)
        if (noted[i])
            return true;
    return false;
}

/* Compares the record's counts of noted pages in each extent, and the state of each page, with the
 * model. */
static void check_pages(void)
{
    unsigned counted = 0;
    unsigned expected = 0;
    for (const struct handed_out_leaf *leaf = handed_out_first(); leaf != NULL; leaf = leaf->next)
        for (size_t extent = 0; extent < HANDED_OUT_EXTENTS; extent++)
            counted += leaf->noted[extent];
    for (size_t page = 0; page < SPAN / 4096; page++) {
        uintptr_t address = base + page * 4096;
        const struct handed_out_leaf *leaf = handed_out_leaves[address >> HANDED_OUT_LEAF_SHIFT];
        bool is_noted =
            leaf != NULL && handed_out_page_is_noted(leaf, (address - leaf->start) / 4096);
        CHECK(is_noted == page_noted(page));
        expected += page_noted(page);
    }
    CHECK(counted == expected);
}

/* handed_out_add() looks only at both ends of a block. If both ends are noted already, it does not
 * note the memory between them. */
TEST(a_block_is_new_until_handed_out_and_again_after_it_was_forgotten)
{
    struct random random = random_of(20261122);
    unsigned fresh = 0;
    for (int step = 0; step < 200000; step++) {
        uintptr_t offset = (uintptr_t)random_below(&random, SPAN / GRANULE) * GRANULE;
        size_t bytes = random_size(&random);
        if (bytes > SPAN - offset)
            bytes = SPAN - offset;
        if (random_below(&random, 10) == 0) {
            uintptr_t start = offset & ~(uintptr_t)4095;
            bytes = (bytes + 4095) & ~(size_t)4095;
            if (bytes > SPAN - start)
                bytes = SPAN - start;
            handed_out_forget(base + start, bytes);
            memset(&noted[start / GRANULE], 0, bytes / GRANULE);
            continue;
        }
        bool was_new = !noted[offset / GRANULE];
        /* The end of the block is not noted: the block is longer than earlier blocks at this
         * address. */
        bool is_longer = !noted[(offset + bytes - 1) / GRANULE];
        CHECK(handed_out_add((void *)(base + offset), bytes) == was_new);
        if (was_new || is_longer)
            model_note(offset, bytes);
        fresh += was_new;
        if (step % 1000 == 0)
            check_pages();
        if (test_failed)
            return;
    }
    check_pages();
    CHECK(fresh > 1000);
}

/* Hidden granules are noted, but handed_out_is_noted() returns false for them. */
TEST(hidden_granules_stay_noted_until_they_are_forgotten)
{
    uintptr_t start = (UINT64_C(70) << HANDED_OUT_LEAF_SHIFT) - 65536;
    enum { BYTES = 2 * 65536 }; /* in two leaves */
    for (uintptr_t at = start; at < start + BYTES; at += 96)
        CHECK(handed_out_add((void *)at, 48));
    CHECK(handed_out_hide(start + 4096, BYTES - 8192));
    for (uintptr_t at = start; at < start + BYTES; at += 96) {
        bool is_hidden = at >= start + 4096 && at < start + BYTES - 4096;
        CHECK(handed_out_is_noted((void *)at) == !is_hidden);
    }
    for (uintptr_t at = start + 4128; at < start + BYTES - 4096; at += 96)
        /* A hidden block is still noted, so it is not new. Its own bit is set again. */
        CHECK(!handed_out_add((void *)at, 16));
    handed_out_show(start, BYTES);
    for (uintptr_t at = start; at < start + BYTES; at += 96)
        CHECK(handed_out_is_noted((void *)at) && !handed_out_add((void *)at, 16));
    CHECK(handed_out_hide(start, BYTES));
    handed_out_forget(start, BYTES);
    for (uintptr_t at = start; at < start + BYTES; at += 96)
        CHECK(handed_out_add((void *)at, 48));
}

TEST(memory_of_any_size_is_noted_to_its_end)
{
    const size_t sizes[] = {1,     16,    17,    1023,    1024,           1025,
                            32767, 32768, 32769, 5 << 20, (size_t)3 << 30};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        uintptr_t start = ((UINT64_C(100) + 8 * i) << HANDED_OUT_LEAF_SHIFT) + 48;
        uintptr_t last = (start + sizes[i] - 1) & ~(uintptr_t)15;
        uintptr_t behind = (start + sizes[i] + 15) & ~(uintptr_t)15;
        CHECK(handed_out_add((void *)start, sizes[i]));
        CHECK(!handed_out_add((void *)start, 1));
        CHECK(!handed_out_add((void *)last, 1));
        CHECK(handed_out_add((void *)behind, 1));
    }
}

TEST(a_leaf_that_is_forgotten_counts_no_pages)
{
    uintptr_t start = UINT64_C(300) << HANDED_OUT_LEAF_SHIFT;
    CHECK(handed_out_add((void *)start, 5 << 20));
    CHECK(handed_out_add((void *)(start + (9 << 20)), 100));
    const struct handed_out_leaf *leaf = handed_out_leaves[300];
    REQUIRE(leaf != NULL && leaf->start == start);
    CHECK(leaf->noted[0] == HANDED_OUT_EXTENT_PAGES && leaf->noted[2] == 256 &&
          leaf->noted[4] == 1);
    handed_out_forget(start, (size_t)1 << HANDED_OUT_LEAF_SHIFT);
    for (size_t extent = 0; extent < HANDED_OUT_EXTENTS; extent++)
        CHECK(leaf->noted[extent] == 0);
    CHECK(handed_out_add((void *)start, 1) && leaf->noted[0] == 1);
}

TEST(whole_pages_are_forgotten)
{
    uintptr_t start = UINT64_C(301) << HANDED_OUT_LEAF_SHIFT;
    CHECK(handed_out_add((void *)start, 3 * 4096));
    handed_out_forget(start, 4097); /* like munmap, this takes two whole pages */
    CHECK(handed_out_leaves[301]->noted[0] == 1);
    CHECK(!handed_out_add((void *)(start + 2 * 4096), 1) &&
          handed_out_add((void *)(start + 4096), 1));
}

TEST(a_block_that_grew_is_noted_to_its_end)
{
    uintptr_t start = UINT64_C(302) << HANDED_OUT_LEAF_SHIFT;
    CHECK(handed_out_add((void *)start, 65536));
    CHECK(!handed_out_add((void *)start, 1 << 20));
    CHECK(handed_out_leaves[302]->noted[0] == 256);
    CHECK(!handed_out_add((void *)(start + (1 << 19)), 1));
}

TEST(pages_that_the_allocator_holds_are_counted_by_extents)
{
    uintptr_t start = UINT64_C(303) << HANDED_OUT_LEAF_SHIFT;
    CHECK(handed_out_hold(start + 4096, 3 << 20) == 3 << 20);
    const struct handed_out_leaf *leaf = handed_out_leaves[303];
    REQUIRE(leaf != NULL);
    CHECK(handed_out_held(leaf, 0) == HANDED_OUT_EXTENT_PAGES - 1 &&
          handed_out_held(leaf, 1) == 257);
    CHECK(handed_out_held(leaf, 2) == 0);
    CHECK(handed_out_let_go(start + 4096, 1 << 20) == 1 << 20);
    CHECK(handed_out_held(leaf, 0) == HANDED_OUT_EXTENT_PAGES - 257);
    /* Makes a leaf inside the range of addresses that the next call marks as held. */
    CHECK(handed_out_add((void *)(start + ((uintptr_t)5 << 30)), 1));
    handed_out_hold(start + ((uintptr_t)4 << 30), (size_t)64 << 30);
    CHECK(handed_out_held(handed_out_leaves[308], 7) == HANDED_OUT_EXTENT_PAGES &&
          handed_out_held(leaf, 2) == 0);
}

/* A mapping may replace another one, and memory may be given back that was got unseen. */
TEST(each_page_is_held_once_and_given_back_once)
{
    enum { MIB = 1 << 20, PAGE = 4096 };
    uintptr_t start = (UINT64_C(450) << HANDED_OUT_LEAF_SHIFT) - 2 * MIB;
    CHECK(handed_out_let_go(start, 4 * MIB) == 0);
    CHECK(handed_out_hold(start, 4 * MIB) == 4 * MIB);
    CHECK(handed_out_hold(start + MIB, 4 * MIB) == MIB);
    CHECK(handed_out_let_go(start + PAGE, 1) == PAGE);
    CHECK(handed_out_hold(start, 2 * PAGE + 1) == PAGE);
    CHECK(handed_out_let_go(start, 8 * MIB) == 5 * MIB);
    CHECK(handed_out_let_go(start, 8 * MIB) == 0);
}

/* Wide mappings are trimmed at both ends, and parts of them are mapped anew. */
TEST(a_wide_mapping_is_held_as_a_whole)
{
    const size_t gib = (size_t)1 << 30, part = 2 << 20;
    uintptr_t start = (UINT64_C(400) << HANDED_OUT_LEAF_SHIFT) + part;
    CHECK(handed_out_hold(start + part, part) == part);
    CHECK(handed_out_hold(start, 4 * gib) == 4 * gib - part);
    CHECK(handed_out_hold(start + gib, part) == 0);
    CHECK(handed_out_let_go(start, part) == part);
    CHECK(handed_out_let_go(start + 4 * gib - part, 2 * part) == part);
    for (int i = 0; i < 3; i++) {
        CHECK(handed_out_let_go(start + gib, part) == part);
        CHECK(handed_out_let_go(start + gib, part) == 0);
        CHECK(handed_out_hold(start + gib, part) == part);
        CHECK(handed_out_hold(start + gib, part) == 0);
    }
    CHECK(handed_out_let_go(start, 4 * gib) == 4 * gib - 2 * part);
    CHECK(handed_out_let_go(start, 4 * gib) == 0);
}

TEST(addresses_of_57_bits_are_supported)
{
    uintptr_t high = UINT64_C(1) << 56;
    CHECK(handed_out_add((void *)high, 64));
    CHECK(!handed_out_add((void *)high, 64));
    handed_out_forget(high, 4096);
    CHECK(handed_out_add((void *)high, 64));
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
