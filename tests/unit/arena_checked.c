#define _GNU_SOURCE 1

#include "arena_os.h"
#include "death.h"
#include "test.h"

#include <cairn/arena.h>

static struct cairn_arena *checked(void)
{
    return cairn_arena_create_with(
        &(struct cairn_arena_options){.checked = CAIRN_ARENA_CHECKED_ON});
}

/* Writes a byte at an address. Hides the write from the compiler, which would warn about it. */
static void write_to(volatile char *where)
{
    *where = 'x';
}

static void write_after_reset_then_allocate(void)
{
    struct cairn_arena *arena = checked();
    char *block = cairn_arena_alloc(arena, 100);
    cairn_arena_reset(arena);
    write_to(block + 50);
    cairn_arena_alloc(arena, 100);
}

static void write_after_rewind_then_destroy(void)
{
    struct cairn_arena *arena = checked();
    cairn_arena_alloc(arena, 100);
    struct cairn_arena_point mark = cairn_arena_mark(arena);
    char *block = cairn_arena_alloc(arena, 100000);
    cairn_arena_rewind(arena, mark);
    write_to(block + 99999);
    cairn_arena_destroy(arena);
}

static void write_after_reset_then_reset(void)
{
    struct cairn_arena *arena = checked();
    for (unsigned i = 0; i < 1000; i++)
        cairn_arena_alloc(arena, 1000);
    char *block = cairn_arena_alloc(arena, 1);
    cairn_arena_reset(arena);
    write_to(block);
    cairn_arena_reset(arena);
}

static void write_after_reset_then_check(void)
{
    static char memory[1000];
    struct cairn_arena *arena = cairn_arena_create_with(&(struct cairn_arena_options){
        .memory = memory, .memory_bytes = sizeof memory, .checked = CAIRN_ARENA_CHECKED_ON});
    char *block = cairn_arena_alloc(arena, 100);
    cairn_arena_reset(arena);
    write_to(block);
    cairn_arena_check(arena);
}

static void write_after_reset_then_resize(void)
{
    struct cairn_arena *arena = checked();
    char *block = cairn_arena_alloc(arena, 1000);
    cairn_arena_reset(arena);
    char *newest = cairn_arena_alloc(arena, 16);
    write_to(block + 500);
    cairn_arena_resize(arena, newest, 16, 800);
}

TEST(a_write_to_freed_memory_is_found_by_the_next_call)
{
    CHECK(dies(write_after_reset_then_allocate, "written to after it was rewound or reset"));
    CHECK(dies(write_after_rewind_then_destroy, "written to after it was rewound or reset"));
    CHECK(dies(write_after_reset_then_reset, "written to after it was rewound or reset"));
    CHECK(dies(write_after_reset_then_check, "written to after it was rewound or reset"));
    CHECK(dies(write_after_reset_then_resize, "written to after it was rewound or reset"));
}

static size_t overrun;

static void write_past_the_end(void)
{
    struct cairn_arena *arena = checked();
    char *block = cairn_arena_alloc(arena, 100);
    write_to(block + 100 + overrun);
    cairn_arena_reset(arena);
}

static void write_past_the_end_after_resizing(void)
{
    struct cairn_arena *arena = checked();
    char *block = cairn_arena_alloc(arena, 1000);
    block = cairn_arena_resize(arena, block, 1000, 100);
    write_to(block + 100 + overrun);
    cairn_arena_check(arena);
}

TEST(a_write_past_the_end_of_a_block_is_found)
{
    for (overrun = 0; overrun < 28; overrun += 9) {
        CHECK(dies(write_past_the_end, "written past its end"));
        CHECK(dies(write_past_the_end_after_resizing, "written past its end"));
    }
}

static struct cairn_arena *shared_arena;
static char *shared_block;

static void write_past_the_shared_block(void)
{
    write_to(shared_block + 100);
    cairn_arena_check(shared_arena);
}

TEST(the_error_names_the_arena_and_the_address)
{
    shared_arena = checked();
    shared_block = cairn_arena_alloc(shared_arena, 100);
    char words[200];
    snprintf(words, sizeof words, "cairn: arena %p: a block was written past its end at %p\n",
             (void *)shared_arena, (void *)(shared_block + 100));
    CHECK(dies(write_past_the_shared_block, words));
    cairn_arena_destroy(shared_arena);
}

static void rewind_to_a_mark_that_was_rewound_past(void)
{
    struct cairn_arena *arena = checked();
    struct cairn_arena_point first = cairn_arena_mark(arena);
    cairn_arena_alloc(arena, 100);
    struct cairn_arena_point second = cairn_arena_mark(arena);
    cairn_arena_rewind(arena, first);
    cairn_arena_alloc(arena, 100);
    cairn_arena_mark(arena); /* this mark has the same address as the second one */
    cairn_arena_alloc(arena, 1000);
    cairn_arena_rewind(arena, second);
}

static void rewind_to_a_mark_in_a_chunk_that_is_gone(void)
{
    struct cairn_arena *arena = checked();
    cairn_arena_alloc(arena, 100000);
    struct cairn_arena_point mark = cairn_arena_mark(arena);
    cairn_arena_reset(arena);
    cairn_arena_trim(arena, 0);
    cairn_arena_rewind(arena, mark);
}

static void rewind_to_a_mark_of_another_arena(void)
{
    cairn_arena_rewind(checked(), cairn_arena_mark(checked()));
}

TEST(a_rewind_to_an_invalid_mark_is_found)
{
    CHECK(dies(rewind_to_a_mark_that_was_rewound_past, "rewound to a mark"));
    CHECK(dies(rewind_to_a_mark_in_a_chunk_that_is_gone, "rewound to a mark"));
    CHECK(dies(rewind_to_a_mark_of_another_arena, "rewound to a mark"));
}

static void resize_with_too_large_an_old_size(void)
{
    struct cairn_arena *arena = checked();
    cairn_arena_resize(arena, cairn_arena_alloc(arena, 100), 101, 300);
}

TEST(an_old_size_that_is_too_large_is_found)
{
    CHECK(dies(resize_with_too_large_an_old_size, "fewer bytes"));
}

static void write_after_reset_by_environment(void)
{
    setenv("CAIRN_ARENA_CHECKED", "1", 1);
    struct cairn_arena *arena = cairn_arena_create(0);
    char *block = cairn_arena_alloc(arena, 100);
    cairn_arena_reset(arena);
    write_to(block + 50);
    cairn_arena_destroy(arena);
}

static bool inline_path_works(const char *value)
{
    setenv("CAIRN_ARENA_CHECKED", value, 1);
    struct cairn_arena *arena = cairn_arena_create(0);
    bool works = arena->next != arena->end;
    cairn_arena_destroy(arena);
    unsetenv("CAIRN_ARENA_CHECKED");
    return works;
}

TEST(the_environment_can_ask_for_checks)
{
    CHECK(dies(write_after_reset_by_environment, "written to after it was rewound or reset"));
    bool asan = __asan_poison_memory_region != NULL;
    CHECK(!inline_path_works("1") && !inline_path_works("yes"));
    CHECK(inline_path_works("") == !asan && inline_path_works("0") == !asan);
}

static struct cairn_pool *checked_pool(bool shared)
{
    return cairn_pool_create_with(&(struct cairn_pool_options){
        .object_bytes = 40, .shared = shared, .checked = CAIRN_ARENA_CHECKED_ON});
}

static bool shared;

static void give_back_twice(void)
{
    struct cairn_pool *pool = checked_pool(shared);
    void *object = cairn_pool_alloc(pool);
    cairn_pool_free(pool, object);
    cairn_pool_free(pool, object);
}

static void give_back_twice_with_others_between(void)
{
    struct cairn_pool *pool = checked_pool(shared);
    void *object = cairn_pool_alloc(pool);
    void *other = cairn_pool_alloc(pool);
    cairn_pool_free(pool, object);
    cairn_pool_free(pool, other);
    cairn_pool_free(pool, object);
}

static void give_back_to_another_pool(void)
{
    cairn_pool_free(checked_pool(shared), cairn_pool_alloc(checked_pool(shared)));
}

static void give_back_the_middle(void)
{
    struct cairn_pool *pool = checked_pool(shared);
    cairn_pool_free(pool, (char *)cairn_pool_alloc(pool) + 8);
}

static void write_after_giving_back(void)
{
    struct cairn_pool *pool = checked_pool(shared);
    char *object = cairn_pool_alloc(pool);
    cairn_pool_free(pool, object);
    write_to(object + 39);
    cairn_pool_alloc(pool);
}

static void write_after_giving_back_then_destroy(void)
{
    struct cairn_pool *pool = checked_pool(shared);
    char *object = cairn_pool_alloc(pool);
    cairn_pool_free(pool, object);
    write_to(object + 20);
    cairn_pool_destroy(pool);
}

static void write_past_the_end_of_an_object(void)
{
    struct cairn_pool *pool = checked_pool(shared);
    char *object = cairn_pool_alloc(pool);
    write_to(object + 40);
    cairn_pool_free(pool, object);
}

static void write_past_the_end_of_an_idle_object(void)
{
    struct cairn_pool *pool = checked_pool(shared);
    char *object = cairn_pool_alloc(pool);
    void *other = cairn_pool_alloc(pool);
    cairn_pool_free(pool, object);
    write_to(object + 40 + overrun);
    cairn_pool_free(pool, other);
    cairn_pool_alloc(pool);
}

static void write_after_resetting_the_pool_then_allocate(void)
{
    struct cairn_pool *pool = checked_pool(shared);
    char *object = cairn_pool_alloc(pool);
    cairn_pool_reset(pool);
    write_to(object);
    cairn_pool_alloc(pool);
}

static void write_after_resetting_the_pool_then_destroy(void)
{
    struct cairn_pool *pool = checked_pool(shared);
    char *object = NULL;
    for (unsigned i = 0; i < 1000; i++)
        object = cairn_pool_alloc(pool);
    cairn_pool_reset(pool);
    cairn_pool_alloc(pool);
    write_to(object);
    cairn_pool_destroy(pool);
}

TEST(mistakes_with_a_pool_are_found)
{
    for (unsigned i = 0; i < 2; i++) {
        shared = i == 1;
        CHECK(dies(give_back_twice, "given back twice"));
        CHECK(dies(give_back_twice_with_others_between, "given back twice"));
        CHECK(dies(give_back_to_another_pool, "not of this pool"));
        CHECK(dies(give_back_the_middle, "not of this pool"));
        CHECK(dies(write_after_giving_back, "written to after it was given back"));
        CHECK(dies(write_after_giving_back_then_destroy, "written to after it was given back"));
        CHECK(dies(write_past_the_end_of_an_object, "written past its end"));
        for (overrun = 0; overrun < 16; overrun++)
            CHECK(dies(write_past_the_end_of_an_idle_object, "written to after it was given back"));
        CHECK(dies(write_after_resetting_the_pool_then_allocate,
                   "written to after it was given back"));
        CHECK(dies(write_after_resetting_the_pool_then_destroy,
                   "written to after it was given back"));
    }
}

static size_t late_word;
static bool late_zero;
static enum { THEN_ALLOCATE, THEN_GIVE_BACK, THEN_CHECK, THEN_DESTROY } late_call;

static void write_a_word_after_giving_back(void)
{
    struct cairn_pool *pool = checked_pool(shared);
    volatile uintptr_t *object = cairn_pool_alloc(pool);
    void *second = cairn_pool_alloc(pool);
    void *third = cairn_pool_alloc(pool);
    cairn_pool_free(pool, (void *)object);
    cairn_pool_free(pool, second);
    object[late_word] = late_zero ? 0 : (uintptr_t)0x4141414141414141;
    switch (late_call) {
    case THEN_ALLOCATE:
        for (unsigned i = 0; i < 3; i++)
            cairn_pool_alloc(pool);
        break;
    case THEN_GIVE_BACK:
        cairn_pool_free(pool, third);
        cairn_pool_reset(pool);
        break;
    case THEN_CHECK:
        cairn_pool_check(pool);
        break;
    case THEN_DESTROY:
        cairn_pool_destroy(pool);
        break;
    }
}

/* The list of free objects once linked them through their first words, which the pool did not
 * verify. A write to the first member of a freed object is the most common mistake. Such a write
 * made the pool follow a wild pointer into SIGBUS. If the written value was zero, the pool silently
 * lost all later objects of the list. */
TEST(a_write_to_any_word_of_an_object_that_was_given_back_is_found)
{
    for (unsigned i = 0; i < 2 * 5 * 2 * 4; i++) {
        shared = i % 2 == 1;
        late_word = i / 2 % 5;
        late_zero = i / 10 % 2 == 1;
        late_call = i / 20;
        CHECK(dies(write_a_word_after_giving_back, "written to after it was given back"));
    }
}

/* All freed objects are handed out again, the oldest first, before new ones are made. */
TEST(a_checked_pool_loses_no_object)
{
    struct cairn_pool *pool = checked_pool(false);
    void *objects[300];
    for (size_t i = 0; i < COUNT_OF(objects); i++)
        objects[i] = cairn_pool_alloc(pool);
    for (unsigned round = 0; round < 3; round++) {
        for (size_t i = 0; i < COUNT_OF(objects); i++) {
            memset(objects[i], (int)i, 40);
            cairn_pool_free(pool, objects[i]);
        }
        cairn_pool_check(pool);
        for (size_t i = 0; i < COUNT_OF(objects); i++)
            CHECK(cairn_pool_alloc(pool) == objects[i]);
        cairn_pool_check(pool);
        CHECK(cairn_pool_statistics(pool).high_water_count == COUNT_OF(objects));
    }
    cairn_pool_reset(pool);
    for (size_t i = 0; i < COUNT_OF(objects); i++)
        memset(cairn_pool_alloc(pool), 1, 40);
    cairn_pool_check(pool);
    cairn_pool_destroy(pool);
    CHECK(fake_os.mapped_bytes == 0);
}

static void read_after_reset(void)
{
    struct cairn_arena *arena = cairn_arena_create(0);
    volatile char *block = cairn_arena_alloc(arena, 100);
    cairn_arena_reset(arena);
    if (block[5] == 'x')
        _exit(0);
}

static void read_after_giving_back(void)
{
    struct cairn_pool *pool = cairn_pool_create(40, 0);
    volatile char *object = cairn_pool_alloc(pool);
    cairn_pool_free(pool, (void *)object);
    if (object[5] == 'x')
        _exit(0);
}

TEST(the_address_sanitizer_finds_reads_as_well)
{
    if (__asan_poison_memory_region != NULL) {
        CHECK(dies(read_after_reset, "use-after-poison"));
        CHECK(dies(read_after_giving_back, "use-after-poison"));
    }
}

/* After the destruction the caller may use the memory, and the sanitizer does not report such a
 * use. */
TEST(destroying_an_arena_leaves_the_callers_memory_usable)
{
    static char memory[4096];
    struct cairn_arena *arena = cairn_arena_create_over(memory, sizeof memory);
    cairn_arena_alloc(arena, 100);
    cairn_arena_destroy(arena);
    memset(memory, 1, sizeof memory);
    CHECK(memory[4000] == 1);
}

TEST(a_checked_arena_takes_memory_from_the_caller_whatever_it_holds)
{
    static char memory[4096];
    memset(memory, 'x', sizeof memory);
    struct cairn_arena *arena = cairn_arena_create_with(&(struct cairn_arena_options){
        .memory = memory, .memory_bytes = sizeof memory, .checked = CAIRN_ARENA_CHECKED_ON});
    memset(cairn_arena_alloc(arena, 100), 1, 100);
    cairn_arena_check(arena);
    cairn_arena_destroy(arena);
}

TEST(a_checked_arena_supports_every_operation)
{
    struct cairn_arena *arena = checked();
    char *text = cairn_arena_strdup(arena, "cairn");
    struct cairn_arena_point mark = cairn_arena_mark(arena);
    for (size_t size = 0; size < 3000; size++) {
        char *block = cairn_arena_alloc_aligned(arena, size, (size_t)1 << size % 14);
        CHECK((uintptr_t)block % ((size_t)1 << size % 14) == 0);
        memset(block, 1, size);
        block = cairn_arena_resize(arena, block, size, size * 2);
        memset(block, 2, size * 2);
        block = cairn_arena_resize(arena, block, size * 2, size / 2);
        memset(block, 3, size / 2);
    }
    cairn_arena_check(arena);
    cairn_arena_rewind(arena, mark);
    cairn_arena_rewind(arena, mark);
    CHECK(strcmp(text, "cairn") == 0);
    cairn_arena_trim(arena, 5000);
    cairn_arena_check(arena);
    cairn_arena_destroy(arena);
    CHECK(fake_os.mapped_bytes == 0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
