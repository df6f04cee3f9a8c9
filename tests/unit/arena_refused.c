/* arena_refused.c - tests an arena while the kernel refuses one system call, or all calls after a
 * certain one. The functions return NULL, nothing leaks, no existing block changes, and afterwards
 * all requests succeed again. */
#define _GNU_SOURCE 1

#include "arena_os.h"
#include "test.h"

#include <cairn/arena.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { KEPT_BYTES = 5000, FILL = 0x77 };

static bool is_whole(const char *kept)
{
    for (size_t i = 0; i < KEPT_BYTES; i++)
        if (kept[i] != FILL)
            return false;
    return true;
}

/* Runs the scenario: one arena and a pool from creation to destruction. Returns how many requests
 * returned NULL. */
static unsigned scenario(struct cairn_arena_options options)
{
    unsigned nulls = 0;
    struct cairn_arena *arena = cairn_arena_create_with(&options);
    if (arena == NULL)
        return 1;
    char *kept = cairn_arena_alloc(arena, KEPT_BYTES);
    if (kept != NULL)
        memset(kept, FILL, KEPT_BYTES);
    struct cairn_arena_point mark = cairn_arena_mark(arena);
    for (unsigned round = 0; round < 2; round++) {
        for (size_t size = 1000; size < 200 * KIB; size *= 2) {
            char *block = cairn_arena_alloc(arena, size);
            nulls += block == NULL;
            if (block != NULL)
                memset(block, 1, size);
            char *grown = cairn_arena_resize(arena, block, block == NULL ? 0 : size, 3 * size);
            nulls += grown == NULL;
        }
        nulls += cairn_arena_alloc_aligned(arena, 100, 4 * MIB) == NULL;
        nulls += cairn_arena_alloc(
                     arena, options.checked == CAIRN_ARENA_CHECKED_ON ? MIB : 33 * MIB) == NULL;
        cairn_arena_check(arena);
        cairn_arena_rewind(arena, mark);
        cairn_arena_trim(arena, round * 300 * KIB);
        cairn_arena_check(arena);
        CHECK(kept == NULL || is_whole(kept));
        CHECK(cairn_arena_statistics(arena).mapped_bytes == fake_os.mapped_bytes);
    }
    struct cairn_pool *pool = cairn_pool_create_with(&(struct cairn_pool_options){
        .object_bytes = 1000, .arena = arena, .checked = options.checked});
    nulls += pool == NULL;
    for (unsigned i = 0; pool != NULL && i < 1000; i++)
        nulls += cairn_pool_alloc(pool) == NULL;
    if (pool != NULL)
        cairn_pool_check(pool);
    cairn_pool_destroy(pool);
    cairn_arena_check(arena);
    CHECK(kept == NULL || is_whole(kept));
    cairn_arena_destroy(arena);
    return nulls;
}

/* Unmaps the address space that the simulated kernel refused to unmap, and empties the ledger. No
 * arena can return such address space. */
static void forget_what_could_not_be_unmapped(void)
{
    for (size_t i = 0; i < COUNT_OF(fake_os.ledger); i++) {
        if (fake_os.ledger[i].start != NULL)
            real_unmap(fake_os.ledger[i].start, fake_os.ledger[i].bytes);
        fake_os.ledger[i].start = NULL;
    }
    fake_os.mapped_bytes = 0;
}

/* Runs the scenario once for each of its system calls, and refuses only this call. Then runs it
 * once more for each call, and refuses all calls after this one. The number of calls varies a
 * little with the addresses that the kernel chooses for aligned mappings. So the last calls do not
 * happen in every run. */
static void refuse_each(struct cairn_arena_options options)
{
    fake_os.refuse_call = fake_os.refuse_after = fake_os.call_count = 0;
    CHECK(scenario(options) == 0);
    CHECK(fake_os.mapped_bytes == 0);
    unsigned total = fake_os.call_count;
    CHECK(total > 10);
    for (unsigned call = 1; call <= total; call++) {
        fake_os.call_count = fake_os.refused_count = 0;
        fake_os.refuse_call = call;
        unsigned unmaps = fake_os.unmap_count;
        scenario(options);
        CHECK(fake_os.refused_count == 1 || fake_os.call_count < call);
        bool all_unmapped = fake_os.mapped_bytes == 0;
        CHECK(all_unmapped || fake_os.unmap_count > unmaps);
        forget_what_could_not_be_unmapped();
    }
    fake_os.refuse_call = 0;
    for (unsigned call = 1; call <= total; call++) {
        fake_os.call_count = fake_os.refused_count = 0;
        fake_os.refuse_after = call;
        scenario(options);
        CHECK(fake_os.refused_count > 0 || fake_os.call_count <= call);
        forget_what_could_not_be_unmapped();
    }
    fake_os.refuse_after = fake_os.call_count = 0;
    CHECK(scenario(options) == 0);
    CHECK(fake_os.mapped_bytes == 0);
}

TEST(an_arena_survives_whatever_the_kernel_refuses)
{
    refuse_each((struct cairn_arena_options){.checked = CAIRN_ARENA_CHECKED_OFF});
}

TEST(an_arena_in_the_callers_memory_survives_whatever_the_kernel_refuses)
{
    static char memory[20000];
    refuse_each((struct cairn_arena_options){
        .memory = memory, .memory_bytes = sizeof memory, .checked = CAIRN_ARENA_CHECKED_OFF});
}

TEST(a_checked_arena_survives_whatever_the_kernel_refuses)
{
    refuse_each((struct cairn_arena_options){.checked = CAIRN_ARENA_CHECKED_ON});
}

TEST(a_refused_mapping_is_retried_with_the_least_size_that_will_do)
{
    struct cairn_arena *arena = cairn_arena_create(16 * MIB);
    CHECK(cairn_arena_alloc(arena, 15 * MIB) != NULL);
    size_t before = fake_os.mapped_bytes;
    fake_os.refuse_call = fake_os.call_count + 1;
    CHECK(cairn_arena_alloc(arena, 5 * MIB) != NULL);
    CHECK(fake_os.mapped_bytes - before < 6 * MIB);
    fake_os.refuse_call = 0;
    cairn_arena_destroy(arena);
}

TEST(at_a_resource_limit_requests_return_null_until_it_is_lifted)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    fake_os.refuse_after = fake_os.call_count;
    size_t count = 0;
    while (cairn_arena_alloc(arena, 1000) != NULL)
        count++;
    CHECK(count > 30);
    CHECK(cairn_arena_alloc(arena, 1000) == NULL);
    fake_os.refuse_after = 0;
    CHECK(cairn_arena_alloc(arena, 1000) != NULL);
    cairn_arena_destroy(arena);
    CHECK(fake_os.mapped_bytes == 0);
}

TEST(a_pool_that_cannot_be_made_leaves_the_callers_arena_alone)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    char *kept = cairn_arena_alloc(arena, KEPT_BYTES);
    REQUIRE(kept != NULL);
    memset(kept, FILL, KEPT_BYTES);
    fake_os.refuse_after = fake_os.call_count;
    while (cairn_arena_alloc(arena, 8) != NULL)
        continue;
    unsigned unmaps = fake_os.unmap_count;
    CHECK(cairn_pool_create_with(
              &(struct cairn_pool_options){.object_bytes = 64, .arena = arena}) == NULL);
    CHECK(fake_os.unmap_count == unmaps && is_whole(kept));
    fake_os.refuse_after = 0;
    CHECK(cairn_arena_alloc(arena, 1000) != NULL);
    cairn_arena_destroy(arena);
    CHECK(fake_os.mapped_bytes == 0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
