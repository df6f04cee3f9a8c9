/* alloc_small_program.c - tests that in a small process classes with few blocks borrow from slabs
 * of larger classes. */
#include "alloc/alloc.h"

#include "alloc/page_heap.h"
#include "alloc_os.h"
#include "test.h"

#include <sys/wait.h>

enum { POWERS = 10 }; /* powers of two from 16 to 8192 */

static size_t gets(size_t size)
{
    return alloc_usable_size(alloc_malloc(size));
}

static uint64_t slabs_made(void)
{
    return atomic_load(&thread_own_heap()->statistics.slabs_made);
}

/* Runs a test in a process of its own, in which the allocator has not allocated anything yet. */
static void apart(void (*live)(void))
{
    fflush(stderr);
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        live();
        heap_check(thread_own_heap());
        page_heap_check();
        _exit(test_failed);
    }
    int status = 1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

#define TEST_APART(title)                                                                          \
    static void title##_alone(void);                                                               \
    TEST(title)                                                                                    \
    {                                                                                              \
        apart(title##_alone);                                                                      \
    }                                                                                              \
    static void title##_alone(void)

TEST_APART(a_block_of_each_class_needs_a_slab_for_each_power_of_two)
{
    for (unsigned class = 0; class <= HEAP_LENT_CLASS_MAX; class++) {
        size_t bytes = size_class_bytes(class);
        size_t got = gets(bytes);
        CHECK(got >= bytes && (got & (got - 1)) == 0 && got < 2 * bytes);
    }
    CHECK(slabs_made() == POWERS + 2); /* 4 KiB and 8 KiB need two slabs each */
    CHECK(gets(9000) == 10240);
}

/* The first 4 KiB of a class's blocks are borrowed from the class of the next power of two. The
 * next blocks, up to 16 KiB in all, are borrowed from classes with four steps to a doubling. All
 * later blocks come from the class's own slabs. */
TEST_APART(a_class_with_more_blocks_borrows_from_closer_classes)
{
    unsigned count[3] = {0};
    for (unsigned i = 0; i < 1000; i++) {
        size_t got = gets(1100);
        CHECK(got == 2048 || got == 1280 || got == 1152);
        count[0] += got == 2048;
        count[1] += got == 1280;
        count[2] += got == 1152;
        CHECK(count[1] == 0 || got != 2048);
        CHECK(count[2] == 0 || got == 1152);
    }
    CHECK(count[0] == 2 && count[1] == 10);
}

/* Every request counts as borrowed bytes, whether or not the block is freed. After 64 borrowed
 * blocks of 64 bytes (4 KiB), the class allocates from slabs of its own. */
TEST_APART(a_class_whose_blocks_are_freed_each_time_gets_its_own_slab_too)
{
    for (unsigned i = 0; i < 65; i++) {
        void *p = alloc_malloc(40);
        size_t got = alloc_usable_size(p);
        CHECK(got == (i < 64 ? 64 : 48));
        alloc_free(p);
    }
}

TEST_APART(borrowed_blocks_are_aligned_like_those_of_the_class)
{
    for (size_t alignment = 1024; alignment >= 32; alignment /= 2) {
        unsigned lent = 0;
        for (size_t size = alignment; size <= 6000; size += alignment) {
            void *p = alloc_aligned(alignment, size);
            CHECK(p != NULL && (uintptr_t)p % alignment == 0);
            lent += alloc_usable_size(p) > size_class_bytes(size_class_aligned(size, alignment));
            alloc_free(p);
        }
        CHECK(lent > 0);
    }
}

TEST_APART(no_block_is_borrowed_in_a_process_that_is_not_small)
{
    CHECK(gets(140) == 256);
    CHECK(alloc_malloc((size_t)CHUNK_BYTES) != NULL);
    CHECK(gets(140) == 144);
    CHECK(gets(200) == 208);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
