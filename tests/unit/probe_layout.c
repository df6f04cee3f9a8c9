/* probe_layout.c - tests which blocks take the slow path because the layout is recorded. */
#include "probe/layout.h"

#include "probe/freed_sample.h"
#include "probe/handed_out.h"
#include "probe/session.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* At most MOST regions are tracked at a time. */
enum { MOST = LAYOUT_PAGES / LAYOUT_REGION_PAGES, REGIONS = 4 * MOST, BYTES = 3000 };

static struct profile_thread counts;
static struct thread_state me = {.number = 1, .counts = &counts};

/* Addresses that nothing accesses. A block begins in each of the regions. */
static void *block_in(size_t region)
{
    return (void *)((UINT64_C(300) << HANDED_OUT_LEAF_SHIFT) + region * LAYOUT_REGION_BYTES + 2048);
}

/* Hands a block out, as the slow path of account.c does. */
static void hand_out(void *block, size_t bytes)
{
    handed_out_add(block, bytes);
    layout_add(&me, block, bytes);
}

/* Begins a layout. Its files stay mapped, but their names are removed at once. Returns false if
 * that is impossible. */
static bool begin(void)
{
    char folder[] = "/tmp/cairn-layout-XXXXXX", path[4096];
    if (mkdtemp(folder) == NULL || setenv("CAIRN_PROBE", folder, 1) != 0 ||
        setenv("CAIRN_PROBE_LAYOUT", "sampled", 1) != 0)
        return false;
    if (session_on())
        layout_begin();
    for (size_t i = 0; i < 2; i++)
        if (session_path(path, sizeof path, i == 0 ? ".layout" : ".probe"))
            unlink(path);
    return rmdir(folder) == 0 && layout_way == LAYOUT_SAMPLED;
}

/* All regions are tracked at first. About half of them are forgotten when there are too many. On a
 * busy machine, regions may also be forgotten because tracking takes long. */
TEST(blocks_of_a_region_that_is_forgotten_take_the_quick_path_again)
{
    bool was_tracked[REGIONS];
    unsigned forgotten = 0;
    REQUIRE(begin());
    for (size_t i = 0; i < REGIONS; i++) {
        hand_out(block_in(i), BYTES);
        was_tracked[i] = !handed_out_is_noted(block_in(i));
    }
    for (size_t i = 0; i < REGIONS; i++) {
        char *block = block_in(i);
        bool is_quick = handed_out_is_noted(block);
        CHECK(handed_out_is_noted(block + BYTES - 1) == is_quick);
        if (!is_quick)
            continue;
        hand_out(block, BYTES);
        CHECK(handed_out_is_noted(block) && handed_out_is_noted(block + BYTES - 1));
        forgotten += was_tracked[i];
    }
    CHECK(forgotten > 0);
}

/* Only a slow path can notice that the address of a freed block is handed out again. */
TEST(freed_blocks_of_the_sample_stay_hidden_when_their_region_is_forgotten)
{
    unsigned sampled = 0, tracked = 0, forgotten = 0;
    bool is_sampled[REGIONS], was_tracked[REGIONS];
    for (size_t i = 0; i < REGIONS; i++) {
        char *freed = (char *)block_in(i) + 4096;
        hand_out(freed, BYTES);
        layout_remove(&me, freed);
        is_sampled[i] = freed_sample_has_room((uintptr_t)freed);
        layout_freed(&me, freed);
        sampled += is_sampled[i];
    }
    for (size_t i = 0; i < REGIONS; i++) {
        was_tracked[i] = !handed_out_is_noted(block_in(i));
        tracked += was_tracked[i] && is_sampled[i];
    }
    for (size_t i = REGIONS; i < 40 * REGIONS; i++) /* others take their place */
        hand_out(block_in(i), BYTES);
    for (size_t i = 0; i < REGIONS; i++) {
        /* Blocks that were not freed show whether the region was forgotten. */
        forgotten += was_tracked[i] && is_sampled[i] && handed_out_is_noted(block_in(i));
        CHECK(!is_sampled[i] || !handed_out_is_noted((char *)block_in(i) + 4096));
    }
    /* On a busy machine, all regions may be forgotten before the others come. */
    CHECK(sampled > 10 && (forgotten > 0 || tracked == 0));
}

/* A block was once its own neighbour, at a distance of 0. */
TEST(a_block_that_is_resized_in_place_is_not_the_next_block)
{
    char *block = block_in(0), *moved = block_in(1);
    me.special = THREAD_PAIR;
    me.function = PROFILE_MALLOC;
    layout_sample(&me, block, 100, 112);
    const struct layout_block *entry = me.layout_entry;
    REQUIRE(entry != NULL);
    me.function = PROFILE_REALLOC;
    me.given = block;
    hand_out(block, 110);
    CHECK(me.layout_entry == entry && entry->next_bytes == 0);
    hand_out(moved, 200);
    CHECK(me.layout_entry == NULL && entry->next_bytes == 200);
    CHECK(entry->distance == moved - block);
    me.special = 0;
    me.function = PROFILE_MALLOC;
}

/* The next block may get the address of the sampled one, which was freed. It was once taken for the
 * sampled block, resized in place. */
TEST(a_new_block_of_realloc_at_the_address_of_a_freed_one_is_the_next_block)
{
    char *block = block_in(0), *others[] = {NULL, block_in(1)};
    me.special = THREAD_PAIR;
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        me.function = PROFILE_MALLOC;
        layout_sample(&me, block, 100, 112);
        const struct layout_block *entry = me.layout_entry;
        REQUIRE(entry != NULL);
        me.function = PROFILE_REALLOC;
        me.given = others[i];
        hand_out(block, 110);
        CHECK(me.layout_entry == NULL && entry->next_bytes == 110 && entry->distance == 0);
    }
    me.special = 0;
    me.function = PROFILE_MALLOC;
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
