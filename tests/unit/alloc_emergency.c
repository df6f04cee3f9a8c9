/* Tests of the memory for a thread that must not take locks: its blocks, and how the allocator uses
 * it. */
#include "alloc/emergency.h"

#include "alloc/alloc.h"
#include "alloc/guarded_block.h"
#include "alloc_os.h"
#include "test.h"

#include <pthread.h>

enum { BLOCKS = 400, THREADS = 4 };

/* Returns whether the first `size` bytes are all `value`. */
static bool is_all(const unsigned char *block, size_t size, unsigned char value)
{
    for (size_t i = 0; i < size; i++)
        if (block[i] != value)
            return false;
    return true;
}

TEST(blocks_are_zero_aligned_and_long_enough)
{
    for (size_t alignment = 1; alignment <= 1 << 17; alignment *= 2) {
        for (size_t size = 0; size < 600000; size = size * 5 + 1) {
            unsigned char *block = emergency_allocate(size, alignment);
            REQUIRE(block != NULL);
            CHECK((uintptr_t)block % alignment == 0 && (uintptr_t)block % 16 == 0);
            CHECK(emergency_bytes(block) >= size);
            CHECK(is_all(block, emergency_bytes(block), 0));
            memset(block, 0xff, emergency_bytes(block));
        }
    }
}

/* The order of the frees does not matter. The memory reads as zero again. */
TEST(memory_is_used_again_when_all_its_blocks_were_freed)
{
    enum { ROUNDS = 200, HALF = 100 };
    unsigned calls = 0; /* in the first half, which fills older mappings */
    for (unsigned i = 0; i < ROUNDS; i++) {
        calls = i == HALF ? fake_os.call_count : calls;
        unsigned char *blocks[3];
        for (unsigned k = 0; k < 3; k++) {
            blocks[k] = emergency_allocate(20000, 1);
            REQUIRE(blocks[k] != NULL);
            CHECK(is_all(blocks[k], 20000, 0));
            memset(blocks[k], 0xff, 20000);
        }
        for (unsigned k = 0; k < 3; k++)
            emergency_free(blocks[(k + i) % 3]);
    }
    CHECK(fake_os.call_count == calls);
}

/* The two blocks of a round do not fit into one mapping. A child of vfork() once left a new mapping
 * in its parent in each round, because only the newest mapping was used. */
TEST(a_mapping_that_is_not_the_newest_is_used_again)
{
    unsigned calls = 0; /* in the first half, which fills older mappings */
    enum { ROUNDS = 200, HALF = 100 };
    for (unsigned i = 0; i < ROUNDS; i++) {
        calls = i == HALF ? fake_os.call_count : calls;
        unsigned char *blocks[2] = {emergency_allocate(200000, 1), emergency_allocate(200000, 1)};
        for (unsigned k = 0; k < 2; k++) {
            REQUIRE(blocks[k] != NULL);
            CHECK(is_all(blocks[k], 200000, 0));
            memset(blocks[k], 0xff, 200000);
        }
        emergency_free(blocks[0]);
        emergency_free(blocks[1]);
    }
    CHECK(fake_os.call_count == calls && calls > 0);
}

/* The count of live blocks in the mapping would fall to 0, and the memory would be cleared. */
TEST(a_second_free_and_one_of_no_block_change_nothing)
{
    unsigned char *block = emergency_allocate(100, 1), *other = emergency_allocate(100, 1);
    REQUIRE(block != NULL && other != NULL);
    memset(other, 7, 100);
    emergency_free(block);
    emergency_free(block);
    emergency_free(other + 32);
    emergency_free(other + 1);
    CHECK(is_all(other, 100, 7));
    unsigned char *third = emergency_allocate(100, 1);
    CHECK(third != NULL && third != other);
}

TEST(a_block_is_recognised_and_other_memory_is_not)
{
    char *small = emergency_allocate(10, 1);
    char *large = emergency_allocate(1 << 20, 1);
    REQUIRE(small != NULL && large != NULL);
    char local;
    CHECK(emergency_owns(small) && emergency_owns(large) && emergency_owns(large + (1 << 20) - 1));
    CHECK(!emergency_owns(&local) && !emergency_owns(NULL) && !emergency_owns(&fake_os));
    void *ordinary = alloc_malloc(10);
    CHECK(ordinary != NULL && !emergency_owns(ordinary));
    alloc_free(ordinary);
}

/* The memory of a mapping is used again when all its blocks were freed. */
TEST(blocks_are_freed_by_the_function_for_both_kinds)
{
    char *lowest = NULL, *highest = NULL;
    for (int i = 0; i < 1000; i++) {
        char *block = emergency_allocate(20000, 1);
        REQUIRE(block != NULL);
        lowest = lowest == NULL || block < lowest ? block : lowest;
        highest = block > highest ? block : highest;
        guarded_or_emergency_free(block);
    }
    CHECK(highest - lowest < 1 << 20);
}

TEST(impossible_requests_fail)
{
    CHECK(emergency_allocate(SIZE_MAX, 1) == NULL);
    CHECK(emergency_allocate(PTRDIFF_MAX, 1) == NULL);
    CHECK(emergency_allocate((size_t)1 << 60, 1) == NULL);
    CHECK(emergency_allocate(1, SIZE_MAX / 2 + 1) == NULL);
    CHECK(emergency_allocate(SIZE_MAX / 2, SIZE_MAX / 2 + 1) == NULL);
}

TEST(a_machine_that_refuses_memory_lets_a_request_fail)
{
    fake_os.refuse_after = 1;
    fake_os.call_count = 1;
    CHECK(emergency_allocate(1 << 20, 1) == NULL);
    fake_os.refuse_after = 0;
    CHECK(emergency_allocate(1 << 20, 1) != NULL);
}

static void *take_many(void *blocks)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        unsigned char **block = (unsigned char **)blocks + i;
        *block = emergency_allocate(i * 11, 1);
        if (*block != NULL)
            memset(*block, (int)(uintptr_t)blocks >> 4, i * 11);
    }
    return NULL;
}

TEST(threads_get_different_memory)
{
    static unsigned char *blocks[THREADS][BLOCKS];
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, take_many, blocks[i]) == 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS; i++)
        for (size_t k = 0; k < BLOCKS; k++)
            CHECK(blocks[i][k] != NULL &&
                  is_all(blocks[i][k], k * 11, (unsigned char)((uintptr_t)blocks[i] >> 4)));
}

/* lock_enter() stands for a signal handler that has interrupted a thread which holds a lock. */
TEST(a_thread_that_holds_a_lock_takes_and_keeps_such_blocks)
{
    enum { LARGE = 100000 };
    unsigned char *old_large = alloc_malloc(LARGE);
    unsigned char *old_long = alloc_malloc(40 * LARGE);
    REQUIRE(old_large != NULL && old_long != NULL);
    memset(old_large, 7, LARGE);
    lock_enter();
    CHECK(!thread_may_lock());
    unsigned char *large = alloc_malloc(LARGE);
    CHECK(large != NULL && emergency_owns(large));
    memset(large, 8, LARGE);
    large = alloc_realloc(large, 2 * LARGE);
    CHECK(large != NULL && emergency_owns(large) && is_all(large, LARGE, 8));
    CHECK(alloc_usable_size(large) >= 2 * LARGE);
    CHECK(!alloc_resize(large, 3 * LARGE));
    unsigned char *moved = alloc_realloc(old_large, 2 * LARGE);
    CHECK(moved != NULL && emergency_owns(moved) && is_all(moved, LARGE, 7));
    unsigned char *zero = alloc_calloc(1, LARGE);
    CHECK(zero != NULL && is_all(zero, LARGE, 0));
    CHECK((uintptr_t)alloc_aligned(1 << 16, 100) % (1 << 16) == 0);
    for (size_t i = 0; i < 10000; i++) { /* more blocks than any list of free blocks holds */
        unsigned char *small = alloc_malloc(100);
        REQUIRE(small != NULL);
        memset(small, 9, 100);
    }
    alloc_free(old_long); /* stays allocated, or is kept by the thread */
    lock_leave();
    CHECK(thread_may_lock());
    unsigned char *ordinary = alloc_realloc(large, LARGE / 2);
    CHECK(ordinary != NULL && !emergency_owns(ordinary) && is_all(ordinary, LARGE / 2, 8));
    alloc_free(ordinary);
    alloc_free(moved);
    alloc_free(zero);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
