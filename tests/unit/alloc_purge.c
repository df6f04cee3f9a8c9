/* alloc_purge.c - tests that a purge goes on if the kernel refuses to take chunks, that other
 * threads can go on meanwhile, and that few addresses are mapped. */
#include "alloc/page_heap.h"

#include "alloc/chunk.h"
#include "alloc_os.h"
#include "base/clock.h"
#include "test.h"

#include <pthread.h>
#include <unistd.h>

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

static _Atomic bool over;
static uint64_t longest_ns;

/* Allocates and frees while another thread purges, and notes the longest time that this takes. */
static void *use_page_heap(void *unused)
{
    bool zero;
    (void)unused;
    while (!atomic_load(&over)) {
        uint64_t began = clock_now_ns();
        page_heap_free(page_heap_allocate(1, 0, &zero), 1);
        uint64_t took = clock_now_ns() - began;
        longest_ns = took > longest_ns ? took : longest_ns;
    }
    return NULL;
}

/* Once, all other threads waited until the whole purge was over. */
TEST(other_threads_use_the_page_heap_during_a_purge)
{
    enum { CHUNKS = 64, US_EACH = 2000 };
    bool zero;
    pthread_t thread;
    size_t index = page_heap_allocate_aligned(CHUNKS * CHUNK_SLICES, CHUNK_BYTES, &zero);
    REQUIRE(index != 0);
    page_heap_free(index, CHUNKS * CHUNK_SLICES);
    REQUIRE(pthread_create(&thread, NULL, use_page_heap, NULL) == 0);
    usleep(20000);
    fake_os.give_back_us = US_EACH;
    page_heap_purge(0);
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    fake_os.give_back_us = 0;
    CHECK(longest_ns < (uint64_t)CHUNKS * US_EACH * 1000 / 2);
    page_heap_check();
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
