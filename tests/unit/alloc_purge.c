/* alloc_purge.c - tests that a purge goes on if the kernel refuses to take chunks, that other
 * threads can go on meanwhile, and that few addresses are mapped. */
#include "alloc/page_heap.h"

#include "alloc/chunk.h"
#include "alloc_os.h"
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
static _Atomic unsigned turns; /* of the thread that does not purge */
static unsigned seen, went_on;

/* Allocates and frees while another thread purges. */
static void *use_page_heap(void *unused)
{
    bool zero;
    (void)unused;
    while (!atomic_load(&over)) {
        page_heap_free(page_heap_allocate(1, 0, &zero), 1);
        atomic_fetch_add(&turns, 1);
    }
    return NULL;
}

/* Counts how often the other thread went on since the last chunk was given back. */
static void look_at_other_thread(void)
{
    usleep(2000); /* the other thread waits for the lock */
    unsigned now = atomic_load(&turns);
    went_on += now != seen;
    seen = now;
}

/* Once, all other threads waited until the whole purge was over. */
TEST(other_threads_use_the_page_heap_during_a_purge)
{
    enum { CHUNKS = 64 };
    bool zero;
    pthread_t thread;
    size_t index = page_heap_allocate_aligned(CHUNKS * CHUNK_SLICES, CHUNK_BYTES, &zero);
    REQUIRE(index != 0);
    page_heap_free(index, CHUNKS * CHUNK_SLICES);
    REQUIRE(pthread_create(&thread, NULL, use_page_heap, NULL) == 0);
    while (atomic_load(&turns) == 0)
        usleep(1000);
    fake_os.gives_back = look_at_other_thread;
    page_heap_purge(0);
    fake_os.gives_back = NULL;
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    /* Without the pauses, the thread can finish one turn: that in which the purge began. */
    CHECK(went_on > 2);
    page_heap_check();
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
