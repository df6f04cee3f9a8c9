/* alloc_purge.c - tests that a purge goes on if the kernel refuses to take chunks, and that a run
 * with room behind it maps few addresses. */
#include "alloc/page_heap.h"

#include "alloc/chunk.h"
#include "alloc_os.h"
#include "test.h"

TEST(a_chunk_that_cannot_be_given_back_does_not_stop_the_others)
{
    enum { CHUNKS = 4 };
    bool zero;
    size_t indices[CHUNKS];
    page_heap_purge(0);
    for (size_t i = 0; i < CHUNKS; i++) {
        indices[i] = page_heap_allocate_aligned(CHUNK_SLICES, CHUNK_BYTES, &zero);
        REQUIRE(indices[i] != 0);
    }
    for (size_t i = 0; i < CHUNKS; i++)
        page_heap_free(indices[i], CHUNK_SLICES);
    fake_os.refuse_call = fake_os.call_count + 1;
    CHECK(page_heap_purge(0) == (size_t)(CHUNKS - 1) * CHUNK_BYTES);
    fake_os.refuse_call = 0;
    CHECK(page_heap_statistics().idle_slices == CHUNK_SLICES);
    CHECK(page_heap_purge(0) == CHUNK_BYTES);
}

/* A purge gives up after eight refused chunks. The next one begins below them. */
TEST(many_chunks_that_cannot_be_given_back_do_not_stop_the_others)
{
    enum { CHUNKS = 12, REFUSED = 8 };
    bool zero;
    size_t indices[CHUNKS];
    page_heap_purge(0);
    for (size_t i = 0; i < CHUNKS; i++) {
        indices[i] = page_heap_allocate_aligned(CHUNK_SLICES, CHUNK_BYTES, &zero);
        REQUIRE(indices[i] != 0);
    }
    for (size_t i = 0; i < CHUNKS; i++)
        page_heap_free(indices[i], CHUNK_SLICES);
    fake_os.refuse_after = fake_os.call_count;
    CHECK(page_heap_purge(0) == 0);
    fake_os.refuse_after = 0;
    CHECK(page_heap_purge((size_t)REFUSED * CHUNK_BYTES) ==
          (size_t)(CHUNKS - REFUSED) * CHUNK_BYTES);
    for (size_t i = 0; i < CHUNKS; i++) {
        bool goes = indices[i] - indices[0] < (size_t)(CHUNKS - REFUSED) * CHUNK_SLICES;
        CHECK((bitmap_load(&chunk_of(indices[i] / CHUNK_SLICES)->dirty) == 0) == goes);
    }
    CHECK(page_heap_purge(0) == (size_t)REFUSED * CHUNK_BYTES);
}

TEST(the_room_behind_a_run_is_bounded)
{
    const size_t run = (size_t)2 << 30, room = (size_t)64 << 20;
    bool zero;
    size_t mapped = chunk_end() * CHUNK_BYTES;
    size_t index = page_heap_allocate(run >> SLICE_SHIFT, run >> SLICE_SHIFT, &zero);
    REQUIRE(index != 0);
    CHECK(chunk_end() * CHUNK_BYTES - mapped <= run + room + 2 * CHUNK_BYTES);
    page_heap_free(index, run >> SLICE_SHIFT);
    page_heap_purge(0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
