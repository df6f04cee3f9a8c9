/* alloc_slabs.c - tests that each free of a small block is counted once, and that misuse ends the
 * process before memory is used twice. */
#include "alloc/alloc.h"

#include "alloc/page_heap.h"
#include "alloc/shared_heap.h"
#include "alloc/stats.h"
#include "alloc_os.h"
#include "death.h"
#include "test.h"

#include <pthread.h>

enum { BYTES = 1024, IN_A_SLAB = SLICE_BYTES / BYTES, MANY = 8 * IN_A_SLAB, OTHERS = 4000 };

static void *block[MANY];

/* Makes the process too large for borrowed blocks, and then fills `block` from the class's own
 * slabs. */
static void take_many(void)
{
    static void *other[OTHERS];
    for (unsigned i = 0; i < OTHERS; i++)
        other[i] = alloc_malloc(BYTES);
    for (unsigned i = 0; i < OTHERS; i++)
        alloc_free(other[i]);
    heap_collect(thread_own_heap());
    for (unsigned i = 0; i < MANY; i++)
        block[i] = alloc_malloc(BYTES);
}

/* Moves the blocks of one full slab to the front of `block`. Returns the slab. */
static struct slab *full_slab_first(void)
{
    struct slab *slab = slab_of(block[MANY / 2]);
    unsigned count = 0;
    for (unsigned i = 0; i < MANY; i++)
        if (slab_of(block[i]) == slab) {
            void *other = block[count];
            block[count++] = block[i];
            block[i] = other;
        }
    CHECK(count == IN_A_SLAB && remote_state(slab) == REMOTE_FULL);
    return slab;
}

static void in_thread(void *(*run)(void *), void *argument)
{
    pthread_t id;
    CHECK(pthread_create(&id, NULL, run, argument) == 0 && pthread_join(id, NULL) == 0);
}

struct range {
    unsigned first;
    unsigned end;
};

static void *free_range(void *argument)
{
    const struct range *range = argument;
    for (unsigned i = range->first; i < range->end; i++)
        alloc_free(block[i]);
    return NULL;
}

static void free_in_thread(unsigned first, unsigned end)
{
    in_thread(free_range, &(struct range){first, end});
}

static struct cairn_stats now(void)
{
    struct cairn_stats stats;
    stats_gather(&stats);
    return stats;
}

/* --- counting --------------------------------------------------------------------------------- */

/* A free by another thread posts the block to its slab (remote.h). The free is counted once: while
 * the block is posted, after the owner collected the block, and after the whole slab was freed. */
TEST(frees_by_other_threads_are_counted_once_at_each_stage)
{
    take_many();
    struct slab *slab = full_slab_first();
    struct cairn_stats before = now();
    free_in_thread(0, 1);
    CHECK(now().remote_frees == before.remote_frees + 1 && now().wakes == before.wakes);
    CHECK(now().live_count == before.live_count - 1);
    /* A slab is parked when an eighth of its blocks is posted: two of sixteen. */
    free_in_thread(1, 3);
    CHECK(now().remote_frees == before.remote_frees + 3 && now().wakes == before.wakes + 1);
    CHECK(remote_state(slab) == REMOTE_PARKED && remote_count_of(atomic_load(&slab->posted)) == 3);

    heap_collect(thread_own_heap());
    CHECK(remote_count_of(atomic_load(&slab->posted)) == 0);
    CHECK(now().remote_frees == before.remote_frees + 3);
    CHECK(now().live_count == before.live_count - 3);

    free_in_thread(3, IN_A_SLAB); /* the last one frees the slab */
    CHECK(slab->kind != RUN_SLAB);
    CHECK(now().remote_frees == before.remote_frees + IN_A_SLAB);
    CHECK(now().claims == before.claims + 1);
    CHECK(now().live_count == before.live_count - IN_A_SLAB);
    for (unsigned i = IN_A_SLAB; i < MANY; i++)
        alloc_free(block[i]);
    heap_check(thread_own_heap());
}

/* Another thread frees the last live block of the slab. This free also frees the slab. */
TEST(a_single_free_by_another_thread_is_counted)
{
    heap_collect(thread_own_heap());
    take_many();
    struct slab *slab = full_slab_first();
    for (unsigned i = IN_A_SLAB; i < MANY; i++)
        alloc_free(block[i]); /* fills the thread's list of the class */
    for (unsigned i = 0; i < IN_A_SLAB - 1; i++)
        alloc_free(block[i]);
    struct cairn_stats before = now();
    free_in_thread(IN_A_SLAB - 1, IN_A_SLAB);
    CHECK(slab->kind != RUN_SLAB && now().claims == before.claims + 1);
    CHECK(now().remote_frees == before.remote_frees + 1 &&
          now().live_count == before.live_count - 1);
}

/* A thread posts the blocks of a slab together (batch.h). */
static void *gather(void *slab_of_blocks)
{
    struct slab *slab = slab_of_blocks;
    struct cairn_stats before = now();
    for (unsigned i = 0; i < 3; i++)
        alloc_free(block[i]);
    CHECK(remote_count_of(atomic_load(&slab->posted)) == 0);
    CHECK(now().remote_frees == before.remote_frees + 3);
    CHECK(now().live_count == before.live_count - 3);
    uint32_t most = batch_most(slab->class);
    CHECK(most > 4 && most < IN_A_SLAB);
    for (unsigned i = 3; i < most; i++)
        alloc_free(block[i]);
    CHECK(remote_count_of(atomic_load(&slab->posted)) == most);
    alloc_free(block[most]);
    CHECK(remote_count_of(atomic_load(&slab->posted)) == most && thread_own_heap()->batched != 0);
    heap_collect(thread_own_heap());
    CHECK(remote_count_of(atomic_load(&slab->posted)) == most + 1 &&
          thread_own_heap()->batched == 0);
    alloc_free(block[most + 1]); /* posted when the thread ends */
    return NULL;
}

TEST(frees_by_other_threads_wait_in_batches)
{
    heap_collect(thread_own_heap());
    take_many();
    struct slab *slab = full_slab_first();
    in_thread(gather, slab);
    uint32_t freed = batch_most(slab->class) + 2;
    CHECK(remote_count_of(atomic_load(&slab->posted)) == freed);
    for (unsigned i = freed; i < MANY; i++)
        alloc_free(block[i]);
    heap_collect(thread_own_heap());
    heap_check(thread_own_heap());
}

enum { IN_80_SLABS = 80 * IN_A_SLAB };

static void *spread[IN_80_SLABS];

/* Frees a block whose slab has the first batch, and then needs a slab of another class. */
static void *begin_first_batch(void *nothing)
{
    alloc_free(alloc_malloc(2 * BYTES)); /* makes the heap */
    struct heap *heap = thread_own_heap();
    unsigned i = 0;
    while (i < IN_80_SLABS && batch_of(heap->batches, slab_of(spread[i])) != heap->batches)
        i++;
    CHECK(i < IN_80_SLABS);
    alloc_free(spread[i]);
    spread[i] = NULL;
    CHECK(heap->batched == 1);
    alloc_free(alloc_malloc(BYTES / 2));
    CHECK(heap->batched == 0);
    return nothing;
}

TEST(a_thread_that_needs_a_slab_first_posts_its_batches)
{
    take_many();
    for (unsigned i = 0; i < IN_80_SLABS; i++)
        spread[i] = alloc_malloc(BYTES);
    in_thread(begin_first_batch, NULL);
    for (unsigned i = 0; i < IN_80_SLABS; i++)
        alloc_free(spread[i]);
    for (unsigned i = 0; i < MANY; i++)
        alloc_free(block[i]);
    heap_collect(thread_own_heap());
    heap_check(thread_own_heap());
}

/* When a shared heap is destroyed, its blocks in use are freed. None of them may wait in a batch of
 * another thread. */
TEST(blocks_of_shared_heaps_are_posted_at_once)
{
    bool zero;
    struct heap *heap = shared_heap_create();
    REQUIRE(heap != NULL);
    void *p = shared_heap_allocate(heap, 64, 1, &zero);
    REQUIRE(p != NULL);
    alloc_free(p);
    CHECK(thread_own_heap()->batched == 0);
    shared_heap_destroy(heap);
}

TEST(a_block_begins_where_a_multiple_of_its_size_is_carved)
{
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++) {
        void *p = alloc_malloc(size_class_bytes(class));
        REQUIRE(p != NULL);
        struct slab *slab = slab_of(p);
        uint32_t bytes = (uint32_t)size_class_bytes(slab->class);
        uint32_t wrong = 0;
        for (uint32_t at = 0; at < slab->slices * (uint32_t)SLICE_BYTES; at++)
            wrong += slab_begins(slab, at) != (at % bytes == 0 && at / bytes < slab->carved);
        CHECK(wrong == 0);
        alloc_free(p);
    }
}

/* The owner frees the last block after another thread has freed (posted) the rest. The slab is then
 * freed only by the next sweep. */
TEST(a_sweep_returns_how_many_slabs_it_claimed)
{
    heap_collect(thread_own_heap());
    take_many();
    struct slab *slab = full_slab_first();
    heap_sweep();
    for (unsigned i = 0; i < 2; i++) /* without room on the list, the block goes to its slab */
        thread_own_heap()->room[slab->class] = 0, alloc_free(block[i]);
    CHECK(remote_state(slab) == REMOTE_PARKED);
    struct cairn_stats before = now();
    free_in_thread(2, IN_A_SLAB - 1);
    CHECK(slab->kind == RUN_SLAB && now().claims == before.claims);
    CHECK(heap_sweep() == 0);
    thread_own_heap()->room[slab->class] = 0;
    alloc_free(block[IN_A_SLAB - 1]);
    CHECK(slab->kind == RUN_SLAB && heap_sweep() == 1 && slab->kind != RUN_SLAB);
    CHECK(now().claims == before.claims + 1);
    for (unsigned i = IN_A_SLAB; i < MANY; i++)
        alloc_free(block[i]);
    heap_check(thread_own_heap());
}

/* The destroyed heap has full slabs and a current slab. The sizes include the smallest class. */
TEST(a_heap_that_is_destroyed_gives_back_every_slab)
{
    bool zero;
    shared_heap_destroy(shared_heap_create());
    size_t before = page_heap_level().use.used;
    for (size_t bytes = 1; bytes <= SIZE_CLASS_BYTES_MAX; bytes *= 8) {
        struct heap *heap = shared_heap_create();
        REQUIRE(heap != NULL);
        for (unsigned i = 0; i < 5 * SLICE_BYTES / 16; i++)
            REQUIRE(shared_heap_allocate(heap, bytes, 1, &zero) != NULL);
        CHECK(page_heap_level().use.used > before);
        shared_heap_destroy(heap);
        CHECK(page_heap_level().use.used == before);
    }
}

/* If records were not reused, a program that makes a heap for each task would need more memory with
 * each task. */
TEST(a_new_heap_reuses_the_record_of_a_destroyed_one)
{
    struct heap *heap = shared_heap_create();
    REQUIRE(heap != NULL);
    shared_heap_destroy(heap);
    REQUIRE(shared_heap_create() == heap);
    shared_heap_release(heap);
    REQUIRE(shared_heap_create() == heap);
    shared_heap_destroy(heap);
}

/* --- mistakes --------------------------------------------------------------------------------- */

/* The write destroys the key in the freed block, so that the second free cannot be recognized by
 * the key. */
static void free_twice_and_write_between(void *p)
{
    alloc_free(p);
    memset(p, 0x5a, sizeof(struct block));
    alloc_free(p);
}

/* Frees all blocks of the slab except the last one, and frees the last but one twice. So the number
 * of frees equals the number of blocks, although one block is still in use. */
static void *free_all_but_one(void *argument)
{
    for (unsigned i = 0; i < IN_A_SLAB - 2; i++)
        alloc_free(block[i]);
    free_twice_and_write_between(block[IN_A_SLAB - 2]);
    return argument;
}

static void others_free_a_block_instead_of_another(void)
{
    in_thread(free_all_but_one, NULL);
}

/* The frees of the other slabs' blocks come first. They leave an empty slab, and they fill the
 * thread's list of the class, so that each further freed block goes to its slab. */
static void the_owner_frees_a_block_instead_of_another(void)
{
    for (unsigned i = IN_A_SLAB; i < MANY; i++)
        alloc_free(block[i]);
    free_all_but_one(NULL);
}

TEST(a_slab_is_not_given_back_while_a_block_of_it_is_in_use)
{
    const char *words = "a free block was written to, or one was freed twice";
    heap_collect(thread_own_heap());
    take_many();
    full_slab_first();
    CHECK(dies(others_free_a_block_instead_of_another, words));
    CHECK(dies(the_owner_frees_a_block_instead_of_another, words));
    for (unsigned i = 0; i < MANY; i++)
        alloc_free(block[i]);
}

static unsigned frees_between;

static void free_twice(void)
{
    alloc_free(block[0]);
    for (unsigned i = 1; i <= frees_between; i++)
        alloc_free(block[i]);
    alloc_free(block[0]);
}

/* The allocator notices a double free at the second free, and not only when it hands out the block
 * again. The report then shows the stack of the mistake. */
TEST(the_second_free_itself_is_noticed)
{
    take_many();
    full_slab_first();
    char words[100];
    snprintf(words, sizeof words, "cairn: a block is freed twice: %p, size class %zu", block[0],
             alloc_usable_size(block[0]));
    for (frees_between = 0; frees_between < IN_A_SLAB - 1; frees_between++)
        CHECK(dies(free_twice, words));
    for (unsigned i = 0; i < MANY; i++)
        alloc_free(block[i]);
}

static void ask_size_after_free(void)
{
    alloc_free(block[0]);
    alloc_usable_size(block[0]);
}

static void resize_after_free(void)
{
    alloc_free(block[0]);
    alloc_realloc(block[0], BYTES);
}

TEST(a_freed_block_has_no_size_and_cannot_be_resized)
{
    take_many();
    CHECK(dies(ask_size_after_free, "is asked after it was freed"));
    CHECK(dies(resize_after_free, "is resized after it was freed"));
    for (unsigned i = 0; i < MANY; i++)
        alloc_free(block[i]);
}

static void *free_two(void *argument)
{
    alloc_free(block[0]);
    alloc_free(block[1]);
    return argument;
}

/* After heap_collect(), a freed block goes to its slab, and not to the list of the heap. So the
 * next allocation takes the slow path. */
TEST(a_slow_path_does_not_hand_out_the_block_that_was_freed_last)
{
    take_many();
    full_slab_first();
    heap_collect(thread_own_heap());
    free_two(NULL);
    void *next = alloc_malloc(BYTES);
    CHECK(next == block[0]);
    CHECK(alloc_malloc(BYTES) == block[1]);
    heap_collect(thread_own_heap());
    in_thread(free_two, NULL);
    next = alloc_malloc(BYTES);
    CHECK(next == block[0]);
    CHECK(alloc_malloc(BYTES) == block[1]);
    heap_check(thread_own_heap());
    for (unsigned i = 0; i < MANY; i++)
        alloc_free(block[i]);
}

TEST(the_keys_of_free_blocks_are_secret)
{
    alloc_free(alloc_malloc(1));
    CHECK(slab_secret >> 32 != 0 && slab_secret % 16 == 8);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
