/* alloc_small_program.c - while a process is small, classes with few blocks share the slabs of coarser ones. */
#include "alloc/alloc.h"

#include "alloc/page_heap.h"
#include "alloc_os.h"
#include "test.h"

enum { POWERS = 10 }; /* of two, from 16 to 8192 */

static size_t gets(size_t size)
{
    return alloc_usable_size(alloc_malloc(size));
}

static uint64_t slabs_made(void)
{
    return atomic_load(&thread_heap->statistics.slabs_made);
}

TEST(a_block_of_each_class_needs_a_slab_for_each_power_of_two)
{
    for (unsigned class = 0; class <= HEAP_LENT_CLASS_MAX; class++) {
        size_t bytes = size_class_bytes(class);
        size_t got = gets(bytes);
        CHECK(got >= bytes && (got & (got - 1)) == 0 && got < 2 * bytes);
    }
    CHECK(slabs_made() == POWERS);
    CHECK(gets(9000) == 10240);
    heap_check(thread_heap);
}

/* 4 KiB of the next power of two, until 16 KiB of four classes to a doubling, then of its own. */
TEST(a_class_with_more_blocks_gets_finer_ones)
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
    CHECK(count[0] == 1 && count[1] == 10); /* and one 2048 above */
    heap_check(thread_heap);
}

/* It is what is asked for that makes a class hot, not what is kept. */
TEST(a_class_that_is_freed_each_time_gets_its_own_too)
{
    size_t got = 0;
    for (unsigned i = 0; i < 64; i++) {
        void *p = alloc_malloc(40);
        got = alloc_usable_size(p);
        alloc_free(p);
    }
    CHECK(got == 48);
    heap_check(thread_heap);
}

TEST(lent_blocks_are_aligned_as_their_own_would_be)
{
    for (size_t alignment = 32; alignment <= 1024; alignment *= 2)
        for (size_t size = alignment; size <= 6000; size += alignment) {
            void *p = alloc_aligned(alignment, size);
            CHECK(p != NULL && (uintptr_t)p % alignment == 0);
            alloc_free(p);
        }
    heap_check(thread_heap);
}

TEST(nothing_is_lent_once_the_process_is_not_small)
{
    CHECK(gets(140) == 256);
    CHECK(alloc_malloc((size_t)CHUNK_BYTES) != NULL);
    CHECK(gets(140) == 144);
    CHECK(gets(200) == 208);
    heap_check(thread_heap);
    page_heap_check();
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
