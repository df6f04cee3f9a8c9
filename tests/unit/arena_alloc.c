#define _GNU_SOURCE 1

#include "arena_os.h"
#include "test.h"

#include <cairn/arena.h>

#include <inttypes.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static bool all_are(const void *start, size_t bytes, unsigned char value)
{
    const unsigned char *byte = start;
    for (size_t i = 0; i < bytes; i++)
        if (byte[i] != value)
            return false;
    return true;
}

static size_t resident_bytes(const void *start, size_t bytes)
{
    static unsigned char in_core[64 << 10];
    size_t page = real_page_bytes();
    char *first = (char *)start - (uintptr_t)start % page;
    size_t span = (bytes + (uintptr_t)start % page + page - 1) / page;
    size_t resident = 0;
    if (span <= sizeof in_core && mincore(first, span * page, in_core) == 0)
        for (size_t i = 0; i < span; i++)
            resident += (in_core[i] & 1) * page;
    return resident;
}

static struct cairn_arena *with(struct cairn_arena_options options)
{
    return cairn_arena_create_with(&options);
}

static bool nothing_is_mapped(void)
{
    return fake_os.mapped_bytes == 0;
}

TEST(blocks_of_every_small_size_are_aligned_disjoint_and_writable)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    char *blocks[2000];
    for (size_t size = 0; size < COUNT_OF(blocks); size++) {
        blocks[size] = cairn_arena_alloc(arena, size);
        CHECK(blocks[size] != NULL && (uintptr_t)blocks[size] % CAIRN_ARENA_ALIGNMENT == 0);
        memset(blocks[size], (int)size, size);
    }
    for (size_t size = 0; size < COUNT_OF(blocks); size++)
        CHECK(all_are(blocks[size], size, (unsigned char)size));
    cairn_arena_check(arena);
    cairn_arena_destroy(arena);
    CHECK(nothing_is_mapped());
}

TEST(a_block_of_no_bytes_is_not_null_and_takes_none)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    size_t before = cairn_arena_statistics(arena).allocated_bytes;
    CHECK(cairn_arena_alloc(arena, 0) != NULL);
    CHECK(cairn_arena_statistics(arena).allocated_bytes == before);
    CHECK(cairn_arena_alloc_aligned(arena, 0, 64) != NULL);
    CHECK(cairn_arena_alloc_zeroed(arena, 0, 8) != NULL);
    CHECK(cairn_arena_alloc_array(arena, 8, 0) != NULL);
    CHECK(cairn_arena_memdup(arena, "", 0) != NULL);
    cairn_arena_destroy(arena);
}

TEST(sizes_that_overflow_are_refused_and_change_nothing)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    struct cairn_arena_stats before = cairn_arena_statistics(arena);
    unsigned calls = fake_os.call_count;
    for (size_t less = 0; less < 5000; less++) {
        CHECK(cairn_arena_alloc(arena, SIZE_MAX - less) == NULL);
        CHECK(cairn_arena_alloc(arena, (size_t)PTRDIFF_MAX + 1 + less) == NULL);
        CHECK(cairn_arena_alloc_aligned(arena, SIZE_MAX - less, 4096) == NULL);
        CHECK(cairn_arena_resize(arena, NULL, 0, SIZE_MAX - less) == NULL);
    }
    CHECK(cairn_arena_alloc_array(arena, SIZE_MAX / 2, 3) == NULL);
    CHECK(cairn_arena_alloc_zeroed(arena, SIZE_MAX / 8 + 2, 8) == NULL);
    CHECK(fake_os.call_count == calls);
    CHECK(cairn_arena_alloc(arena, PTRDIFF_MAX) == NULL); /* the kernel refuses these two */
    CHECK(cairn_arena_alloc_aligned(arena, 16, (size_t)1 << 63) == NULL);
    struct cairn_arena_stats after = cairn_arena_statistics(arena);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    cairn_arena_check(arena);
    cairn_arena_destroy(arena);
    CHECK(cairn_arena_create(SIZE_MAX) == NULL);
    CHECK(cairn_arena_create(PTRDIFF_MAX) == NULL);
    CHECK(nothing_is_mapped());
}

TEST(any_power_of_two_up_to_a_gibibyte_is_an_alignment_and_nothing_else_is)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    CHECK(cairn_arena_alloc_aligned(arena, 8, 0) == NULL);
    CHECK(cairn_arena_alloc_aligned(arena, 8, 3) == NULL);
    CHECK(cairn_arena_alloc_aligned(arena, 8, 48) == NULL);
    for (size_t alignment = 1; alignment <= GIB; alignment *= 2) {
        char *block = cairn_arena_alloc_aligned(arena, 100, alignment);
        CHECK(block != NULL && (uintptr_t)block % alignment == 0);
        if (block != NULL)
            memset(block, 1, 100);
        cairn_arena_check(arena);
    }
    cairn_arena_destroy(arena);
    CHECK(nothing_is_mapped());
}

/* Memory that is mapped only to align the block is unmapped at once, so that it counts neither as
 * address space nor towards the limit. */
TEST(a_large_alignment_takes_no_more_memory_than_a_small_one)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    size_t before = fake_os.mapped_bytes;
    CHECK(cairn_arena_alloc_aligned(arena, 1 * MIB, GIB) != NULL);
    CHECK(fake_os.mapped_bytes - before < 1 * MIB + 128 * KIB);
    cairn_arena_destroy(arena);
}

TEST(errno_stays_as_it_was)
{
    errno = 4711;
    struct cairn_arena *arena = with((struct cairn_arena_options){.limit_bytes = 1 * MIB});
    CHECK(cairn_arena_alloc(arena, 2 * MIB) == NULL);
    CHECK(cairn_arena_alloc(arena, PTRDIFF_MAX) == NULL);
    CHECK(cairn_arena_alloc(arena, 200 * KIB) != NULL);
    cairn_arena_reset(arena);
    cairn_arena_trim(arena, 0);
    cairn_arena_destroy(arena);
    CHECK(cairn_arena_create(PTRDIFF_MAX / 2) == NULL);
    CHECK(errno == 4711);
}

TEST(zeroed_memory_is_zero_whether_fresh_or_used_before)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    for (unsigned round = 0; round < 3; round++) {
        for (size_t size = 1; size < 300 * KIB; size = size * 3 / 2 + 1) {
            char *dirty = cairn_arena_alloc(arena, size);
            memset(dirty, 0xff, size);
            char *block = cairn_arena_alloc_zeroed(arena, size, 3);
            CHECK(all_are(block, 3 * size, 0));
            memset(block, 0xee, 3 * size);
        }
        if (round == 1)
            cairn_arena_trim(arena, 100 * KIB);
        cairn_arena_reset(arena);
    }
    cairn_arena_destroy(arena);
}

TEST(zeroed_memory_from_the_kernel_is_not_touched)
{
    struct cairn_arena *arena = with((struct cairn_arena_options){
        .huge = CAIRN_ARENA_HUGE_NEVER, .checked = CAIRN_ARENA_CHECKED_OFF});
    char *block = cairn_arena_alloc_zeroed(arena, 64, MIB);
    REQUIRE(block != NULL);
    if (arena->next != arena->end) /* false under ASan, which writes to the whole block */
        CHECK(resident_bytes(block, 64 * MIB) <= 2 * real_page_bytes());
    cairn_arena_destroy(arena);
}

TEST(checks_do_not_touch_memory_that_was_not_handed_out)
{
    struct cairn_arena *arena = with((struct cairn_arena_options){
        .huge = CAIRN_ARENA_HUGE_NEVER, .checked = CAIRN_ARENA_CHECKED_ON, .size_hint = 16 * MIB});
    char *block = cairn_arena_alloc(arena, 100);
    REQUIRE(block != NULL);
    CHECK(resident_bytes(arena->next, 15 * MIB) <= 4 * real_page_bytes());
    cairn_arena_destroy(arena);
}

TEST(copies_hold_what_was_copied)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    char *data = cairn_arena_memdup(arena, "a\0b", 4);
    char *text = cairn_arena_strdup(arena, "cairn");
    char *cut = cairn_arena_strndup(arena, "cairn", 3);
    char *whole = cairn_arena_strndup(arena, "cairn", SIZE_MAX);
    char unended[3] = {'a', 'b', 'c'};
    char *ended = cairn_arena_strndup(arena, unended, 3);
    CHECK(memcmp(data, "a\0b", 4) == 0);
    CHECK(strcmp(text, "cairn") == 0);
    CHECK(strcmp(cut, "cai") == 0);
    CHECK(strcmp(whole, "cairn") == 0);
    CHECK(strcmp(ended, "abc") == 0);
    cairn_arena_destroy(arena);
}

TEST(the_newest_block_grows_and_shrinks_where_it_is)
{
    struct cairn_arena *arena = cairn_arena_create(1 * MIB);
    char *older = cairn_arena_alloc(arena, 100);
    memset(older, 1, 100);
    char *block = NULL;
    size_t size = 0;
    while (size < 600 * KIB) {
        size_t larger = size + size / 2 + 7;
        char *grown = cairn_arena_resize(arena, block, size, larger);
        REQUIRE(grown != NULL && (block == NULL || grown == block));
        block = grown;
        CHECK(all_are(block, size, 2));
        memset(block, 2, larger);
        size = larger;
    }
    size_t before = cairn_arena_statistics(arena).allocated_bytes;
    CHECK(cairn_arena_resize(arena, block, size, 10) == block);
    CHECK(all_are(block, 10, 2) && all_are(older, 100, 1));
    CHECK(cairn_arena_statistics(arena).allocated_bytes < before - 599 * KIB);
    cairn_arena_check(arena);
    cairn_arena_destroy(arena);
}

TEST(an_older_block_grows_by_moving_and_shrinks_in_place)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    char *block = cairn_arena_alloc(arena, 100);
    memset(block, 1, 100);
    char *newer = cairn_arena_alloc(arena, 100);
    memset(newer, 2, 100);
    CHECK(cairn_arena_resize(arena, block, 100, 50) == block);
    char *moved = cairn_arena_resize(arena, block, 50, 200);
    CHECK(moved != block && all_are(moved, 50, 1));
    memset(moved, 3, 200);
    CHECK(all_are(newer, 100, 2));
    cairn_arena_check(arena);
    cairn_arena_destroy(arena);
}

TEST(a_block_that_cannot_grow_stays_unchanged)
{
    static char memory[1000];
    struct cairn_arena *arena = cairn_arena_create_over(memory, sizeof memory);
    char *block = cairn_arena_alloc(arena, 100);
    memset(block, 1, 100);
    CHECK(cairn_arena_resize(arena, block, 100, 1000) == NULL);
    CHECK(all_are(block, 100, 1));
    CHECK(cairn_arena_resize(arena, block, 100, SIZE_MAX - 8) == NULL);
    CHECK(cairn_arena_resize(arena, block, 100, 150) == block);
    cairn_arena_destroy(arena);
}

TEST(a_fixed_arena_stays_within_the_callers_memory_whatever_its_address_and_size)
{
    static char memory[2048];
    unsigned maps = fake_os.map_count;
    for (size_t offset = 0; offset < 17; offset++) {
        for (size_t bytes = 0; bytes + offset <= sizeof memory; bytes += bytes % 7 + 1) {
            struct cairn_arena *arena = cairn_arena_create_over(memory + offset, bytes);
            CHECK(bytes < CAIRN_ARENA_OWN_BYTES || arena != NULL);
            size_t used = CAIRN_ARENA_OWN_BYTES;
            for (char *block; arena != NULL && (block = cairn_arena_alloc(arena, 24)) != NULL;) {
                CHECK(block >= memory + offset && block + 24 <= memory + offset + bytes);
                memset(block, 1, 24);
                used += 32 + 32; /* includes the bytes that a checked arena adds */
            }
            CHECK(used + 64 > bytes);
            if (arena != NULL)
                cairn_arena_check(arena);
            cairn_arena_destroy(arena);
            memset(memory + offset, 2, bytes);
        }
    }
    CHECK(fake_os.map_count == maps);
    CHECK(cairn_arena_create_over(NULL, 1000) == NULL);
    CHECK(with((struct cairn_arena_options){.fixed = true}) == NULL);
}

TEST(an_arena_may_begin_in_the_callers_memory_and_go_on_elsewhere)
{
    static char memory[4096];
    struct cairn_arena *arena =
        with((struct cairn_arena_options){.memory = memory, .memory_bytes = sizeof memory});
    CHECK(nothing_is_mapped());
    char *first = cairn_arena_alloc(arena, 1000);
    CHECK(first > memory && first < memory + sizeof memory);
    char *second = cairn_arena_alloc(arena, 10000);
    CHECK(second < memory || second >= memory + sizeof memory);
    CHECK(cairn_arena_statistics(arena).mapped_bytes == fake_os.mapped_bytes);
    CHECK(cairn_arena_statistics(arena).chunk_count == 2);
    cairn_arena_reset(arena);
    cairn_arena_trim(arena, 0);
    CHECK(nothing_is_mapped());
    CHECK(cairn_arena_statistics(arena).chunk_count == 1);
    CHECK(cairn_arena_alloc(arena, 1000) == first);
    cairn_arena_destroy(arena);
}

TEST(a_limit_is_almost_used_up_and_never_exceeded)
{
    for (size_t limit = 4 * KIB; limit < 400 * MIB; limit = limit * 5 / 2) {
        struct cairn_arena *arena = with((struct cairn_arena_options){.limit_bytes = limit});
        REQUIRE(arena != NULL);
        size_t sum = 0;
        for (size_t size = limit / 64; cairn_arena_alloc(arena, size) != NULL; sum += size)
            CHECK(fake_os.mapped_bytes <= limit);
        struct cairn_arena_stats stats = cairn_arena_statistics(arena);
        CHECK(stats.mapped_bytes == fake_os.mapped_bytes && stats.mapped_bytes <= limit);
        CHECK(limit < MIB || sum >= limit / 100 * 75);
        cairn_arena_check(arena);
        cairn_arena_destroy(arena);
    }
    CHECK(with((struct cairn_arena_options){.limit_bytes = 100}) == NULL);
    CHECK(with((struct cairn_arena_options){.limit_bytes = MIB, .size_hint = MIB}) == NULL);
    CHECK(nothing_is_mapped());
}

TEST(the_hinted_size_fits_into_the_first_chunk)
{
    for (size_t hint = 1; hint < 100 * MIB; hint = hint * 3 + 1) {
        unsigned maps = fake_os.map_count;
        struct cairn_arena *arena = with(
            (struct cairn_arena_options){.size_hint = hint, .checked = CAIRN_ARENA_CHECKED_OFF});
        bool watched = arena->next == arena->end;
        CHECK(cairn_arena_alloc(arena, watched ? hint / 2 : hint) != NULL);
        CHECK(hint < 64 || fake_os.map_count == maps + 1);
        cairn_arena_destroy(arena);
    }
}

TEST(a_reset_arena_is_filled_again_without_a_system_call)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    unsigned calls = 0;
    for (unsigned round = 0; round < 3; round++) {
        for (size_t i = 0; i < 3000; i++)
            CHECK(cairn_arena_alloc(arena, i * 7 % 5000) != NULL);
        CHECK(cairn_arena_alloc(arena, 3 * MIB) != NULL);
        CHECK(round == 0 || fake_os.call_count == calls);
        calls = fake_os.call_count;
        cairn_arena_reset(arena);
        cairn_arena_check(arena);
    }
    cairn_arena_destroy(arena);
    CHECK(nothing_is_mapped());
}

/* A spare chunk that is too small for a request is skipped, and serves a later one. */
TEST(a_spare_chunk_is_found_behind_smaller_ones)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    for (unsigned i = 0; i < 4; i++)
        CHECK(cairn_arena_alloc(arena, 150 * KIB) != NULL);
    CHECK(cairn_arena_alloc(arena, 5 * MIB) != NULL);
    cairn_arena_reset(arena);
    unsigned maps = fake_os.map_count;
    CHECK(cairn_arena_alloc(arena, 5 * MIB) != NULL);
    for (unsigned i = 0; i < 2; i++)
        CHECK(cairn_arena_alloc(arena, 150 * KIB) != NULL);
    CHECK(fake_os.map_count == maps);
    cairn_arena_check(arena);
    cairn_arena_destroy(arena);
}

TEST(chunks_grow_with_the_arena_so_that_there_are_few)
{
    struct cairn_arena *arena =
        with((struct cairn_arena_options){.checked = CAIRN_ARENA_CHECKED_OFF});
    for (size_t i = 0; i < 1000 * 1000; i++)
        CHECK(cairn_arena_alloc(arena, 200) != NULL);
    struct cairn_arena_stats stats = cairn_arena_statistics(arena);
    CHECK(stats.chunk_count < 20);
    CHECK(stats.reserved_bytes < 2 * stats.allocated_bytes);
    cairn_arena_destroy(arena);
}

TEST(rewinding_goes_back_over_chunks_and_marks_nest)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    struct cairn_arena_point marks[50];
    char *kept[50];
    size_t allocated[50];
    for (size_t i = 0; i < COUNT_OF(marks); i++) {
        kept[i] = cairn_arena_alloc(arena, i * 1000);
        memset(kept[i], (int)i, i * 1000);
        marks[i] = cairn_arena_mark(arena);
        allocated[i] = cairn_arena_statistics(arena).allocated_bytes;
    }
    size_t most = cairn_arena_statistics(arena).allocated_bytes;
    for (size_t i = COUNT_OF(marks); i-- > 0;) {
        for (unsigned twice = 0; twice < 2; twice++) {
            cairn_arena_rewind(arena, marks[i]);
            CHECK(cairn_arena_statistics(arena).allocated_bytes == allocated[i]);
            memset(cairn_arena_alloc(arena, 5000), 0xff, 5000);
        }
        CHECK(all_are(kept[i], i * 1000, (unsigned char)i));
        cairn_arena_check(arena);
    }
    CHECK(cairn_arena_statistics(arena).high_water_bytes >= most);
    cairn_arena_destroy(arena);
}

TEST(trimming_gives_back_all_but_the_bytes_to_keep)
{
    struct cairn_arena *arena = with((struct cairn_arena_options){.huge = CAIRN_ARENA_HUGE_NEVER});
    char *kept = cairn_arena_alloc(arena, 1000);
    struct cairn_arena_point mark = cairn_arena_mark(arena);
    for (unsigned i = 0; i < 100; i++)
        memset(cairn_arena_alloc(arena, 100 * KIB), 1, 100 * KIB);
    memset(kept, 7, 1000);
    cairn_arena_rewind(arena, mark);
    size_t full = fake_os.mapped_bytes;
    cairn_arena_trim(arena, SIZE_MAX);
    CHECK(fake_os.mapped_bytes == full);
    cairn_arena_trim(arena, 1 * MIB);
    cairn_arena_check(arena);
    struct cairn_arena_stats stats = cairn_arena_statistics(arena);
    CHECK(stats.touched_bytes >= 500 * KIB && stats.touched_bytes <= 1200 * KIB);
    CHECK(fake_os.mapped_bytes < full);
    cairn_arena_trim(arena, 0);
    cairn_arena_check(arena);
    stats = cairn_arena_statistics(arena);
    CHECK(stats.chunk_count == 1 && stats.touched_bytes <= 8 * KIB);
    CHECK(resident_bytes(arena->next, 32 * KIB) <= 2 * real_page_bytes());
    CHECK(all_are(kept, 1000, 7));
    cairn_arena_destroy(arena);
    CHECK(nothing_is_mapped());
}

TEST(large_chunks_ask_for_huge_pages_and_small_ones_do_not)
{
    unsigned asked = fake_os.huge_count;
    struct cairn_arena *arena = cairn_arena_create(1 * MIB);
    CHECK(fake_os.huge_count == asked);
    CHECK(cairn_arena_alloc(arena, 40 * MIB) != NULL);
    CHECK(fake_os.huge_count == asked + 1);
    cairn_arena_destroy(arena);

    arena =
        with((struct cairn_arena_options){.huge = CAIRN_ARENA_HUGE_NEVER, .size_hint = 64 * MIB});
    CHECK(fake_os.huge_count == asked + 1);
    cairn_arena_destroy(arena);

    arena = with((struct cairn_arena_options){.huge = CAIRN_ARENA_HUGE_ON});
    CHECK(fake_os.huge_count == asked + 2);
    CHECK((uintptr_t)cairn_arena_alloc(arena, 1) % (2 * MIB) == 0);
    CHECK(cairn_arena_alloc(arena, MIB) != NULL && fake_os.map_count > 0);
    cairn_arena_destroy(arena);
    CHECK(nothing_is_mapped());
}

/* Returns whether the kernel shows the flag for the mapping of `address`. */
static bool has_flag(const void *address, const char *flag)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    bool within = false;
    bool found = false;
    static char line[4096];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        uintptr_t from;
        uintptr_t to;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
            within = from <= (uintptr_t)address && (uintptr_t)address < to;
        else if (within && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, flag) != NULL;
    }
    if (file != NULL)
        fclose(file);
    return found;
}

/* The reason is a measurement: a million blocks of 10 to 1000 bytes cost less than half as much in
 * huge pages as in small pages. */
TEST(a_hint_of_32_mib_or_more_gets_huge_pages_by_default)
{
    bool kernel_has_them = access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) == 0;
    for (size_t hint = 16 * MIB; hint <= GIB; hint *= 2) {
        unsigned asked = fake_os.huge_count;
        struct cairn_arena *arena = cairn_arena_create(hint);
        char *block = cairn_arena_alloc(arena, hint / 2);
        REQUIRE(block != NULL);
        CHECK(fake_os.huge_count == asked + (hint >= 32 * MIB));
        CHECK(hint < 32 * MIB || (uintptr_t)block % (2 * MIB) == 0);
        CHECK(!kernel_has_them || has_flag(block, " hg") == (hint >= 32 * MIB));
        cairn_arena_destroy(arena);
    }
    CHECK(nothing_is_mapped());
}

TEST(a_chunk_for_huge_pages_has_room_for_whole_ones_where_the_limit_allows)
{
    for (size_t hint = 1; hint < 40 * MIB; hint = hint * 3 + 1) {
        struct cairn_arena *arena =
            with((struct cairn_arena_options){.huge = CAIRN_ARENA_HUGE_ON, .size_hint = hint});
        size_t room = cairn_arena_statistics(arena).reserved_bytes - real_page_bytes();
        CHECK(room >= hint && room % (2 * MIB) == 0);
        cairn_arena_destroy(arena);
    }
    struct cairn_arena *arena =
        with((struct cairn_arena_options){.huge = CAIRN_ARENA_HUGE_ON, .limit_bytes = MIB});
    REQUIRE(arena != NULL);
    CHECK(cairn_arena_statistics(arena).mapped_bytes == MIB);
    CHECK(cairn_arena_alloc(arena, MIB / 2) != NULL && cairn_arena_alloc(arena, MIB) == NULL);
    cairn_arena_destroy(arena);
    CHECK(nothing_is_mapped());
}

/* The chunk's record lies on an OS page of its own, so that an arena which reserves much and uses
 * little stays small. */
TEST(memory_reserved_for_huge_pages_is_not_touched)
{
    struct cairn_arena *arena = cairn_arena_create(256 * MIB);
    char *block = cairn_arena_alloc(arena, 100 * MIB);
    if (arena->next != arena->end)
        CHECK(resident_bytes(block, 100 * MIB) == 0);
    CHECK(cairn_arena_statistics(arena).reserved_bytes >= 256 * MIB);
    cairn_arena_destroy(arena);
}

TEST(statistics_add_up)
{
    struct cairn_arena *arena =
        with((struct cairn_arena_options){.checked = CAIRN_ARENA_CHECKED_OFF});
    struct cairn_arena_stats stats = cairn_arena_statistics(arena);
    CHECK(stats.allocated_bytes == 0 && stats.high_water_bytes == 0 && stats.chunk_count == 1);
    CHECK(stats.reserved_bytes == fake_os.mapped_bytes && stats.touched_bytes == real_page_bytes());
    bool watched = arena->next == arena->end;
    for (size_t i = 1; i <= 10000; i++)
        cairn_arena_alloc(arena, 100);
    stats = cairn_arena_statistics(arena);
    CHECK(watched || stats.allocated_bytes == 10000 * 112);
    CHECK(stats.high_water_bytes == stats.allocated_bytes);
    CHECK(stats.reserved_bytes == fake_os.mapped_bytes &&
          stats.mapped_bytes == fake_os.mapped_bytes);
    CHECK(stats.touched_bytes >= stats.allocated_bytes &&
          stats.touched_bytes <= stats.reserved_bytes);
    cairn_arena_reset(arena);
    CHECK(cairn_arena_statistics(arena).allocated_bytes == 0);
    CHECK(cairn_arena_statistics(arena).high_water_bytes == stats.high_water_bytes);
    CHECK(cairn_arena_statistics(arena).touched_bytes == stats.touched_bytes);
    cairn_arena_destroy(arena);
}

/* An arena in 1000 bytes of the caller once reported 992 bytes as reserved, but a whole OS page of
 * 4096 bytes as touched. */
TEST(touched_bytes_never_exceed_reserved_bytes)
{
    static char memory[3 * 4096];
    for (size_t bytes = CAIRN_ARENA_OWN_BYTES; bytes <= sizeof memory; bytes += 61) {
        struct cairn_arena *arena = with((struct cairn_arena_options){.memory = memory + bytes % 16,
                                                                      .memory_bytes = bytes - 16});
        for (unsigned i = 0; arena != NULL && i < 40; i++) {
            struct cairn_arena_stats stats = cairn_arena_statistics(arena);
            CHECK(stats.touched_bytes <= stats.reserved_bytes);
            cairn_arena_alloc(arena, 1000);
        }
        cairn_arena_destroy(arena);
    }
}

struct wide {
    _Alignas(64) char bytes[64];
};

TEST(an_object_is_aligned_as_its_type_says)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    cairn_arena_alloc(arena, 16);
    struct wide *wide = CAIRN_ARENA_NEW(arena, struct wide);
    int *number = CAIRN_ARENA_NEW(arena, int);
    CHECK((uintptr_t)wide % 64 == 0 && number != NULL);
    cairn_arena_destroy(arena);
    cairn_arena_destroy(NULL);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
