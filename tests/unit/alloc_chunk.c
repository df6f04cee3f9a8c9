/* alloc_chunk.c - tests that the check of the page heap finds a spoiled record of a chunk. */
#include "alloc/chunk.h"

#include "alloc/free_map.h"
#include "alloc/page_heap.h"
#include "alloc_os.h"
#include "death.h"
#include "test.h"

/* Each spoils the record of a chunk that is in use, and then checks the page heap. */
static void spoil_the_count(void)
{
    chunk_of(0)->used_count++;
    page_heap_check();
}

static void spoil_the_longest_run(void)
{
    free_map.chunks[0].longest = 0;
    page_heap_check();
}

TEST(the_check_finds_a_wrong_record_of_a_chunk)
{
    bool zero;
    size_t index = page_heap_allocate(3, 0, &zero);
    REQUIRE(index != 0);
    CHECK(dies(spoil_the_count, "not true: chunk->used_count =="));
    CHECK(dies(spoil_the_longest_run, "recorded.longest >= longest"));
    page_heap_check();
    page_heap_free(index, 3);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
