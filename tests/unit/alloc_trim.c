/* alloc_trim.c - tests that pages of parked slabs are returned to the kernel and used again later,
 * that live blocks keep their content, and that a thread which allocates little also returns
 * pages. */
#include "alloc/alloc.h"

#include "alloc/heap_trim.h"
#include "alloc/page_heap.h"
#include "alloc/purge.h"
#include "alloc/slab_trim.h"
#include "alloc/walk.h"
#include "alloc_os.h"
#include "base/random.h"
#include "death.h"
#include "test.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 20000 };

static struct {
    unsigned char *p;
    size_t bytes;
} block[MOST];

static struct heap *own(void)
{
    return thread_has_heap() ? thread_heap : NULL;
}

static void take(size_t i, size_t bytes)
{
    block[i].p = alloc_malloc(bytes);
    block[i].bytes = bytes;
    memset(block[i].p, (int)(i % 251), bytes);
}

static void drop(size_t i)
{
    bool whole = true;
    for (size_t at = 0; at < block[i].bytes; at++)
        whole &= block[i].p[at] == (unsigned char)(i % 251);
    CHECK(whole);
    alloc_free(block[i].p);
    block[i].p = NULL;
}

static size_t purged(void)
{
    return page_heap_statistics().purged_bytes;
}

static bool count_block(void *p, size_t bytes, void *count)
{
    (void)p, (void)bytes;
    ++*(size_t *)count;
    return true;
}

static size_t live_blocks(void)
{
    size_t count = 0;
    walk_blocks(NULL, count_block, &count);
    return count;
}

TEST_WITHOUT_RACES(pages_on_which_no_block_is_live_go_back_and_come_back)
{
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++) {
        size_t bytes = size_class_bytes(class);
        size_t count = ((size_t)2 << 20) / bytes < MOST ? ((size_t)2 << 20) / bytes : MOST;
        /* About one block survives in each slice of 16 KiB. */
        size_t each = 16384 / bytes > 1 ? 16384 / bytes : 2;
        size_t lived = live_blocks();
        for (size_t i = 0; i < count; i++)
            take(i, bytes);
        for (size_t i = 0; i < count; i++)
            if (i % each != 0)
                drop(i);
        heap_collect(own());
        size_t before = purged();
        heap_trim_all(own());
        heap_check(own());
        page_heap_check();
        size_t given = purged() - before;
        if (!CAIRN_HARDENED && os_page_bytes() == 4096 && bytes >= 2048 && bytes < 4096)
            CHECK(given >= count * bytes / 3);
        CHECK(live_blocks() == lived + (count + each - 1) / each);
        heap_trim_all(own()); /* nothing is left to give back */
        CHECK(purged() - before == given);
        for (size_t i = 0; i < count; i++)
            if (i % each != 0)
                take(i, bytes);
        heap_check(own());
        for (size_t i = 0; i < count; i++)
            drop(i);
        heap_collect(own());
        heap_check(own());
        CHECK(live_blocks() == lived);
    }
}

static void *fill_and_end(void *count)
{
    for (size_t i = 0; i < *(size_t *)count; i++)
        take(i, 3000);
    return NULL;
}

TEST_WITHOUT_RACES(pages_of_a_thread_that_has_ended_go_back_too)
{
    size_t count = 2000, freed = 0;
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, fill_and_end, &count) == 0);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < count; i++)
        if (i % 8 != 0) {
            drop(i);
            freed += 3000;
        }
    heap_sweep();
    size_t before = purged();
    heap_trim_ended();
    heap_check_lists();
    if (!CAIRN_HARDENED && os_page_bytes() == 4096)
        CHECK(purged() - before >= freed / 3);
    for (size_t i = 0; i < count; i++)
        if (i % 8 != 0)
            take(i, 3000); /* the slabs are adopted with their returned pages */
    for (size_t i = 0; i < count; i++)
        drop(i);
    heap_collect(own());
    heap_check(own());
}

TEST_WITHOUT_RACES(random_calls_keep_every_block_whole_while_slabs_are_trimmed)
{
    const char *seed = getenv("SEED");
    struct random random = random_of(seed != NULL ? strtoul(seed, NULL, 10) : 1);
    for (unsigned round = 0; round < 40; round++) {
        /* Each round prefers a few sizes, and either grows or shrinks. */
        size_t most = (size_t)1 << (5 + random_below(&random, 10));
        bool grows = random_below(&random, 2) == 0;
        for (unsigned call = 0; call < 4000; call++) {
            size_t i = random_below(&random, 4000);
            if (block[i].p != NULL && (!grows || random_below(&random, 4) == 0))
                drop(i);
            else if (block[i].p == NULL && (grows || random_below(&random, 8) == 0))
                take(i, 1 + random_below(&random, most));
        }
        if (round % 3 == 0)
            heap_collect(own());
        heap_trim_all(own());
        heap_check(own());
        page_heap_check();
    }
    for (size_t i = 0; i < MOST; i++)
        if (block[i].p != NULL)
            drop(i);
    heap_collect(own());
    heap_check(own());
}

TEST(a_page_that_the_machine_refuses_to_take_keeps_its_place)
{
    for (size_t i = 0; i < 4000; i++)
        take(i, 3000);
    for (size_t i = 0; i < 4000; i++)
        if (i % 5 != 0)
            drop(i);
    heap_collect(own());
    fake_os.refuse_after = fake_os.call_count > 0 ? fake_os.call_count : 1;
    heap_trim_all(own());
    fake_os.refuse_after = 0;
    heap_check(own());
    for (size_t i = 0; i < 4000; i++)
        if (i % 5 != 0)
            take(i, 3000);
    for (size_t i = 0; i < 4000; i++)
        drop(i);
    heap_collect(own());
    heap_check(own());
}

static void *victim;

static void free_victim(void)
{
    alloc_free(victim);
}

static void *free_in_thread(void *p)
{
    alloc_free(p);
    return NULL;
}

static void free_victim_in_thread(void)
{
    pthread_t id;
    if (pthread_create(&id, NULL, free_in_thread, victim) == 0)
        pthread_join(id, NULL);
}

static void resize_victim(void)
{
    alloc_realloc(victim, 100);
}

/* A returned page reads as zero, so it says nothing of the blocks on it that were freed. */
TEST(a_second_free_of_a_block_on_a_returned_page_is_noticed)
{
    static const size_t sizes[] = {48, 1024, 3072, 6144, 24576};
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        size_t count = ((size_t)2 << 20) / sizes[s];
        size_t each = 32768 / sizes[s] + 2;
        for (size_t i = 0; i < count && i < MOST; i++)
            take(i, sizes[s]);
        unsigned char *gone[MOST];
        for (size_t i = 0; i < count && i < MOST; i++) {
            gone[i] = block[i].p;
            if (i % each != 0)
                drop(i);
        }
        heap_collect(own());
        heap_trim_all(own());
        unsigned tried = 0;
        for (size_t i = 0; i < count && i < MOST && tried < 4; i++) {
            const struct slab *slab = slab_at(region_index(gone[i]));
            if (i % each == 0 || (slab->kind != RUN_SLAB && slab->kind != RUN_TAIL))
                continue;
            slab = slab_of((struct block *)gone[i]);
            if (slab->class != size_class(sizes[s]) ||
                !slab_is_hidden(slab, (size_t)((char *)gone[i] - slab_start(slab))))
                continue;
            tried++;
            victim = gone[i];
            CHECK(dies(free_victim, "to no live block"));
            CHECK(dies(free_victim_in_thread, "to no live block"));
            CHECK(dies(resize_victim, "to no live block"));
        }
        CHECK(tried > 0 || CAIRN_HARDENED || os_page_bytes() > 4096);
        /* Live blocks beside returned pages are freed by this thread, and by another one. */
        for (size_t i = 0; i < count && i < MOST; i += each)
            if (i / each % 2 == 0) {
                drop(i);
            } else {
                victim = block[i].p;
                free_victim_in_thread();
                block[i].p = NULL;
            }
        heap_check(own());
        heap_collect(own());
        heap_check(own());
    }
}

/* Allocates and frees one block of 100 bytes after each pause of 5 ms. */
static void do_little(unsigned ms)
{
    for (unsigned i = 0; i < ms / 5; i++) {
        os_sleep_ms(5);
        alloc_free(alloc_malloc(100));
    }
}

TEST(a_thread_that_reuses_one_block_gives_back_what_it_freed)
{
    if (CAIRN_HARDENED)
        return;
    for (size_t i = 0; i < 8000; i++)
        take(i, 3000);
    /* On a busy machine, an epoch ends while the blocks are freed. */
    size_t before = purged();
    for (size_t i = 0; i < 8000; i++)
        if (i % 50 != 0)
            drop(i);
    do_little(1500);
    CHECK(purged() - before > (size_t)15 << 20); /* of 23 MiB */
    CHECK(page_heap_level().use.idle <= (1 << 20) / SLICE_BYTES);
    heap_check(own());

    /* The remaining memory is in use. So the thread must not give it back, however often it
     * looks. */
    uint64_t after = purged();
    do_little(700);
    CHECK(purged() - after <= 64 << 10);
    for (size_t i = 0; i < 8000; i += 50)
        drop(i);
}

/* After the looks that followed the first step nothing made the thread look again, because a parked
 * slab was noticed only when it became empty. The memory of the second step was then never
 * returned. */
TEST(memory_that_a_thread_frees_in_two_steps_goes_back_after_each)
{
    enum { COUNT = 8192, BYTES = 4096 }; /* 2,048 slabs of four blocks */
    if (CAIRN_HARDENED || os_page_bytes() != 4096)
        return;
    for (size_t i = 0; i < COUNT; i++)
        take(i, BYTES);
    size_t before = purged();
    for (size_t i = 0; i < COUNT; i += 4)
        drop(i);
    do_little(1500);
    CHECK(purged() - before > (size_t)7 << 20); /* of 8 MiB */

    before = purged();
    for (size_t i = 0; i < COUNT; i++)
        if (i % 4 == 1 || i % 4 == 2)
            drop(i);
    do_little(1500);
    CHECK(purged() - before > (size_t)15 << 20); /* of 16 MiB */
    heap_check(own());
    for (size_t i = 3; i < COUNT; i += 4)
        drop(i);
    heap_check(own());
}

/* Takes 8,192 blocks of 4 KiB, which fill 2,048 slabs, and frees one of four. Does little until no
 * look is due. */
enum { QUARTERS = 8192 };

static void *free_one_quarter(void *unused)
{
    for (size_t i = 0; i < QUARTERS; i++)
        take(i, 4096);
    for (size_t i = 0; i < QUARTERS; i += 4)
        drop(i);
    for (int i = 0; i < 10 && (i < 5 || own()->trim.due); i++)
        do_little(300);
    return unused;
}

/* Frees two more of four blocks, which must then go back, and at last the fourth. */
static void *free_three_quarters(void *unused)
{
    alloc_free(alloc_malloc(100)); /* the thread has a heap from now on */
    size_t before = purged();
    for (size_t i = 0; i < QUARTERS; i++)
        if (i % 4 == 1 || i % 4 == 2)
            drop(i);
    do_little(1500);
    CHECK(purged() - before > (size_t)15 << 20); /* of 16 MiB */
    heap_check(own());
    for (size_t i = 3; i < QUARTERS; i += 4)
        drop(i);
    return unused;
}

/* When there was no memory, the thread collected its slabs, which then reported nothing more. */
TEST(memory_that_is_freed_after_a_failed_request_goes_back)
{
    if (CAIRN_HARDENED || os_page_bytes() != 4096)
        return;
    free_one_quarter(NULL);
    CHECK(alloc_malloc((size_t)REGION_SLICES_MAX << SLICE_SHIFT) == NULL);
    free_three_quarters(NULL);
}

/* A heap that became idle had collected its slabs, which reported nothing to its next thread. */
TEST(memory_that_a_thread_frees_in_a_heap_that_was_idle_goes_back)
{
    if (CAIRN_HARDENED || os_page_bytes() != 4096)
        return;
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, free_one_quarter, NULL) == 0);
    pthread_join(thread, NULL);
    heap_sweep(); /* makes the heap idle */
    REQUIRE(pthread_create(&thread, NULL, free_three_quarters, NULL) == 0);
    pthread_join(thread, NULL);
}

/* A slab that was used again, or that had ended, was subtracted from the count of parked slices
 * even if it was not part of the count. It then cancelled the report of another slab. */
TEST(a_slab_that_is_used_again_cancels_no_report_of_another_slab)
{
    if (CAIRN_HARDENED)
        return;
    for (size_t i = 0; i < 400; i++)
        take(i, 4096);
    struct heap *heap = own();
    for (size_t i = 200; i < 400; i += 4)
        drop(i); /* of four blocks of a slab */
    heap_cool(heap);
    heap_trim_all(heap);
    CHECK(heap->trim.parked == 0);

    /* `first` is the parked slab that the heap takes first, and `other` is the last one. */
    struct slab *first = slab_at(heap->partial[size_class(4096)]);
    REQUIRE(slab_index(first) != 0 && first->next != 0);
    struct slab *other = first;
    while (other->next != 0)
        other = slab_at(other->next);
    for (size_t i = 0; i < 400 && heap->trim.parked == 0; i++)
        if (block[i].p != NULL && slab_of((struct block *)block[i].p) == other) {
            drop(i);
            heap_cool(heap);
        }
    CHECK(heap->trim.parked == other->slices);
    size_t count = 400;
    while (remote_state(first) == REMOTE_PARKED)
        take(count++, 4096);
    CHECK(heap->trim.parked == other->slices);
    while (remote_state(other) == REMOTE_PARKED)
        take(count++, 4096);
    CHECK(heap->trim.parked == 0);
    for (size_t i = 0; i < count; i++)
        if (block[i].p != NULL)
            drop(i);
    heap_check(heap);
}

/* Other threads post blocks while the owner's looks change what `until` of a slab counts. No slab
 * may then stay behind whose blocks are all posted. */
static _Atomic bool has_begun;

static void *free_every_second(void *unused)
{
    has_begun = true;
    for (size_t i = 1; i < 4096; i += 2)
        drop(i);
    return unused;
}

static bool has_left_behind(void)
{
    bool has = false;
    lock_take(&own()->lock);
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++)
        for (uint32_t i = own()->partial[class]; i != 0; i = slab_at(i)->next)
            has |= remote_has_all(slab_at(i));
    lock_drop(&own()->lock);
    return has;
}

TEST(looks_do_not_strand_a_slab_that_another_thread_empties)
{
    for (unsigned round = 0; round < 5; round++) {
        for (size_t i = 0; i < 4096; i++)
            take(i, 2000);
        for (size_t i = 0; i < 4096; i += 2)
            drop(i);
        heap_cool(own());
        has_begun = false;
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, free_every_second, NULL) == 0);
        while (!has_begun)
            os_sleep_ms(0);
        /* A later look would find a slab that an earlier one left behind. */
        for (unsigned look = 0; look < 50; look++) {
            heap_trim_all(own());
            CHECK(!has_left_behind());
        }
        pthread_join(thread, NULL);
        CHECK(!has_left_behind());
        heap_check(own());
        heap_collect(own());
        heap_check(own());
    }
}

/* Lets the heap look for memory to give back, as at the first operation of an epoch. Returns
 * whether it looked. */
static bool looks(void)
{
    struct heap_trim *trim = &own()->trim;
    trim->epoch = purge_epoch() - 1;
    trim->reopened[0] = 2;
    heap_trim(own(), false);
    return trim->reopened[0] == 1; /* each look halves it */
}

TEST(after_looks_in_vain_a_heap_looks_less_often_but_does_not_stop)
{
    alloc_free(alloc_malloc(100)); /* the thread has a heap from now on */
    heap_collect(own());
    heap_trim_all(own());
    own()->trim.fruitless = 0;
    own()->trim.wait = 0;
    static const unsigned waits[] = {0, 0, 0, 1, 3, 7, 15};
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        for (unsigned epoch = 0; epoch < waits[i]; epoch++)
            CHECK(!looks());
        CHECK(looks());
    }
}

/* A heap that waited made no further detour, and only a detour counted the wait. Each epoch of the
 * wait also forgot how many slices had been parked. */
TEST(a_heap_that_waits_counts_the_wait_and_notices_what_is_freed_meanwhile)
{
    alloc_free(alloc_malloc(100)); /* the thread has a heap from now on */
    struct heap_trim *trim = &own()->trim;
    trim->wait = 4;
    trim->parked = HEAP_TRIM_SLICES;
    CHECK(!looks() && !trim->due && trim->wait == 3);
    trim->parked++;
    CHECK(!looks() && trim->due && trim->wait == 2);
    CHECK(!looks() && trim->due && trim->wait == 1);
    CHECK(!looks() && trim->due && trim->wait == 0);
    CHECK(trim->parked == HEAP_TRIM_SLICES + 1);
    CHECK(looks() && trim->parked == 0);

    if (CAIRN_HARDENED)
        return;
    heap_collect(own());
    /* Idle memory would cause detours, too. */
    for (int i = 0; i < 4 && purge_is_due(); i++)
        do_little(300);
    trim->due = false;
    trim->wait = 3;
    uint32_t epoch = trim->epoch = purge_epoch() - 1;
    for (size_t i = 0; i < 5000; i++)
        take(i, 3000); /* more than 256 refills */
    do_little(20);
    CHECK(trim->epoch != epoch);
    for (size_t i = 0; i < 5000; i++)
        drop(i);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
