/* heaps.c - tests functions of cairn.h: the functions for heaps, cairn_walk() (which visits all
 * blocks), cairn_collect() and cairn_limit(). */
#include "conformance.h"
#include "test.h"

#include <cairn/cairn.h>
#include <pthread.h>
#include <sys/wait.h>

static const size_t sizes[] = {0, 1, 16, 100, 1000, 5000, 32768, 32769, 200000, 3000000};

static struct cairn_stats now(void)
{
    struct cairn_stats stats;
    cairn_statistics(&stats);
    return stats;
}

/* Like now(). In the hardened build, first empties the quarantine, whose blocks count as live. */
static struct cairn_stats settled(void)
{
    if (is_hardened())
        cairn_collect();
    return now();
}

TEST(blocks_of_a_heap_are_freed_with_it)
{
    struct cairn_stats before = settled();
    struct cairn_heap *heap = cairn_heap_create();
    REQUIRE(heap != NULL);
    CHECK(now().heap_count == before.heap_count + 1);
    for (size_t round = 0; round < 300; round++)
        for (size_t i = 0; i < COUNT(sizes); i++) {
            char *p = cairn_heap_malloc(heap, sizes[i]);
            REQUIRE(p != NULL && (uintptr_t)p % 16 == 0 && cairn_usable_size(p) >= sizes[i]);
            memset(p, 1, sizes[i] < 5000 ? sizes[i] : 5000);
        }
    CHECK(now().live_count >= before.live_count + 300 * COUNT(sizes));
    cairn_check();
    cairn_heap_destroy(heap);
    cairn_check();
    struct cairn_stats after = settled();
    CHECK(after.live_count == before.live_count && after.live_bytes == before.live_bytes);
    size_t more = is_hardened() ? 1 << 20 : 32768; /* guards behind slabs stay */
    CHECK(after.used_bytes <= before.used_bytes + more && after.heap_count == before.heap_count);
}

TEST(blocks_of_a_heap_that_is_released_stay_valid)
{
    struct cairn_stats before = settled();
    struct cairn_heap *heap = cairn_heap_create();
    REQUIRE(heap != NULL);
    char *blocks[COUNT(sizes)];
    for (size_t i = 0; i < COUNT(sizes); i++) {
        blocks[i] = cairn_heap_malloc(heap, sizes[i]);
        REQUIRE(blocks[i] != NULL);
        memset(blocks[i], (int)i + 1, sizes[i]);
    }
    cairn_heap_release(heap);
    cairn_check();
    CHECK(now().live_count == before.live_count + COUNT(sizes));
    for (size_t i = 0; i < COUNT(sizes); i++) {
        CHECK(sizes[i] == 0 ||
              (blocks[i][0] == (char)(i + 1) && blocks[i][sizes[i] - 1] == (char)(i + 1)));
        free(blocks[i]);
    }
    CHECK(settled().live_count == before.live_count);
    cairn_check();
}

TEST(every_allocation_call_works_in_a_heap)
{
    struct cairn_heap *heap = cairn_heap_create();
    REQUIRE(heap != NULL);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        unsigned char *zeroed = cairn_heap_calloc(heap, sizes[i], 1);
        REQUIRE(zeroed != NULL);
        for (size_t k = 0; k < sizes[i]; k++)
            REQUIRE(zeroed[k] == 0);
        memset(zeroed, 0xee, sizes[i]);
        free(zeroed);
    }
    for (size_t alignment = 16; alignment <= (size_t)4 << 20; alignment *= 2)
        for (size_t i = 0; i < COUNT(sizes); i++) {
            char *p = cairn_heap_aligned_alloc(heap, alignment, sizes[i]);
            REQUIRE(p != NULL && (uintptr_t)p % alignment == 0 && cairn_usable_size(p) >= sizes[i]);
        }
    errno = 0;
    CHECK(cairn_heap_aligned_alloc(heap, 24, 1) == NULL && errno == EINVAL);
    volatile size_t much = SIZE_MAX / 2;
    errno = 0;
    CHECK(cairn_heap_calloc(heap, much, 4) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(cairn_heap_malloc(heap, much) == NULL && errno == ENOMEM);
    cairn_heap_destroy(heap);
    cairn_heap_destroy(NULL);
    cairn_heap_release(NULL);
    cairn_check();
}

TEST(cairn_heap_realloc_keeps_a_block_in_its_heap)
{
    struct cairn_stats before = settled();
    struct cairn_heap *heap = cairn_heap_create();
    REQUIRE(heap != NULL);
    char *p = cairn_heap_realloc(heap, NULL, 10);
    for (size_t size = 10; size < 1000000; size = size * 3 / 2) {
        p = cairn_heap_realloc(heap, p, size);
        REQUIRE(p != NULL && cairn_usable_size(p) >= size);
        p[0] = 'a';
        p[9] = 'b';
        p[size - 1] = 'c';
    }
    for (size_t size = 1000000; size >= 10; size /= 2) {
        p = cairn_heap_realloc(heap, p, size);
        REQUIRE(p != NULL && p[0] == 'a' && p[9] == 'b');
    }
    CHECK(cairn_heap_realloc(heap, p, 0) == NULL);
    char *stays = cairn_heap_realloc(heap, malloc(100), 50000);
    char *leaves = realloc(cairn_heap_malloc(heap, 100), 50000);
    REQUIRE(stays != NULL && leaves != NULL);
    leaves[49999] = 'x';
    cairn_heap_destroy(heap);
    CHECK(leaves[49999] == 'x');
    free(leaves);
    CHECK(settled().live_count == before.live_count);
    cairn_check();
}

/* --- threads ---------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 3000 };

static struct cairn_heap *common;
static void *exchanged[THREADS][64];

/* Allocates in the heap that all threads share, and frees blocks that any of them allocated. */
static void *use_common(void *argument)
{
    uint64_t state = (uintptr_t)argument + 1;
    for (size_t i = 0; i < ROUNDS; i++) {
        size_t size = draw_below(&state, draw_below(&state, 20) == 0 ? 100000 : 600);
        char *p = cairn_heap_malloc(common, size + 1);
        if (p == NULL)
            return argument;
        p[0] = p[size] = 1;
        void **place = &exchanged[draw_below(&state, THREADS)][draw_below(&state, 64)];
        free(__atomic_exchange_n(place, p, __ATOMIC_ACQ_REL));
    }
    return NULL;
}

TEST(any_thread_can_allocate_in_a_heap_and_free_its_blocks)
{
    struct cairn_stats before = now();
    common = cairn_heap_create();
    REQUIRE(common != NULL);
    pthread_t ids[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&ids[i], NULL, use_common, (void *)(i + 1)) == 0);
    for (int i = 0; i < 50; i++) { /* meanwhile the main thread forks */
        pid_t pid = fork();
        REQUIRE(pid >= 0);
        if (pid == 0) {
            alarm(20);
            void *p = cairn_heap_malloc(common, 300);
            free(p);
            cairn_heap_destroy(common);
            _exit(p == NULL);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        void *failed;
        REQUIRE(pthread_join(ids[i], &failed) == 0);
        CHECK(failed == NULL);
    }
    cairn_check();
    cairn_heap_destroy(common);
    CHECK(now().live_count <= before.live_count + 8); /* blocks that libc keeps for threads */
    cairn_check();
}

static void *own_heap(void *argument)
{
    for (int i = 0; i < 20; i++) {
        struct cairn_heap *heap = cairn_heap_create();
        for (size_t k = 0; heap != NULL && k < 2000; k++)
            if (cairn_heap_malloc(heap, k % 700) == NULL)
                return argument;
        cairn_heap_destroy(heap);
    }
    return NULL;
}

TEST(heaps_can_be_made_and_destroyed_without_growing_the_process)
{
    for (int warm = 0; warm < 2; warm++)
        own_heap(NULL);
    size_t mapped = now().mapped_bytes;
    pthread_t ids[THREADS];
    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < THREADS; i++)
            REQUIRE(pthread_create(&ids[i], NULL, own_heap, &ids) == 0);
        for (size_t i = 0; i < THREADS; i++) {
            void *failed;
            REQUIRE(pthread_join(ids[i], &failed) == 0);
            CHECK(failed == NULL);
        }
    }
    CHECK(now().mapped_bytes <= mapped + ((size_t)32 << 20));
    cairn_check();
}

/* --- the walk --------------------------------------------------------------------------------- */

struct looked_for {
    char *blocks[COUNT(sizes)];
    size_t found[COUNT(sizes)];
    size_t all;
    size_t ends_after;
    uintptr_t last;
    bool in_order;
};

static bool look(void *block, size_t usable_bytes, void *context)
{
    struct looked_for *looked = context;
    free(malloc(usable_bytes)); /* a visitor may allocate and free */
    looked->in_order = looked->in_order && (uintptr_t)block > looked->last;
    looked->last = (uintptr_t)block;
    for (size_t i = 0; i < COUNT(sizes); i++)
        if (looked->blocks[i] == block && usable_bytes == cairn_usable_size(block))
            looked->found[i]++;
    return ++looked->all != looked->ends_after;
}

TEST(a_walk_visits_every_live_block_once)
{
    struct looked_for looked = {.in_order = true};
    for (size_t i = 0; i < COUNT(sizes); i++)
        looked.blocks[i] = malloc(sizes[i]);
    CHECK(cairn_walk(look, &looked));
    CHECK(looked.in_order);
    for (size_t i = 0; i < COUNT(sizes); i++)
        CHECK(looked.found[i] == 1);
    for (size_t i = 0; i < COUNT(sizes); i++)
        free(looked.blocks[i]);
    struct looked_for again = looked;
    again.all = 0;
    again.last = 0;
    CHECK(cairn_walk(look, &again));
    for (size_t i = 0; i < COUNT(sizes); i++)
        CHECK(again.found[i] == 1); /* freed blocks are not visited */
    again.all = 0;
    again.ends_after = 1;
    CHECK(!cairn_walk(look, &again) && again.all == 1);
}

TEST(a_walk_of_a_heap_visits_its_blocks_alone)
{
    struct cairn_heap *heap = cairn_heap_create();
    REQUIRE(heap != NULL);
    struct looked_for looked = {.in_order = true};
    for (size_t i = 0; i < COUNT(sizes); i++)
        looked.blocks[i] = cairn_heap_malloc(heap, sizes[i]);
    CHECK(cairn_heap_walk(heap, look, &looked));
    CHECK(looked.all == COUNT(sizes));
    for (size_t i = 0; i < COUNT(sizes); i++)
        CHECK(looked.found[i] == 1);
    free(looked.blocks[3]);
    free(looked.blocks[8]);
    looked.all = 0;
    CHECK(cairn_heap_walk(heap, look, &looked));
    CHECK(looked.all == COUNT(sizes) - 2);
    cairn_heap_destroy(heap);
}

/* --- collecting ------------------------------------------------------------------------------- */

static void *blocks_of_another[4000];
static pthread_barrier_t barrier;

static void *allocate_and_wait(void *argument)
{
    for (size_t i = 0; i < COUNT(blocks_of_another); i++)
        blocks_of_another[i] = malloc(1000);
    /* This thread frees only one block. The main thread frees the others, so that nearly all slabs
     * become empty by frees of another thread. */
    free(blocks_of_another[0]);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return argument;
}

TEST(collecting_frees_slabs_of_a_sleeping_thread)
{
    pthread_t id;
    pthread_barrier_init(&barrier, NULL, 2);
    size_t before = now().used_bytes;
    REQUIRE(pthread_create(&id, NULL, allocate_and_wait, NULL) == 0);
    pthread_barrier_wait(&barrier);
    CHECK(now().used_bytes >= before + 3900000);
    for (size_t i = 1; i < COUNT(blocks_of_another); i++)
        free(blocks_of_another[i]);
    cairn_collect();
    CHECK(now().used_bytes <= before + 200000);
    cairn_check();
    pthread_barrier_wait(&barrier);
    REQUIRE(pthread_join(id, NULL) == 0);
    pthread_barrier_destroy(&barrier);
}

TEST(collecting_frees_blocks_that_the_thread_keeps_ready)
{
    void *blocks[200];
    for (size_t size = 16; size < 30000; size *= 2) {
        for (size_t i = 0; i < COUNT(blocks); i++)
            blocks[i] = malloc(size);
        for (size_t i = 0; i < COUNT(blocks); i++)
            free(blocks[i]);
    }
    size_t before = now().used_bytes;
    cairn_collect();
    struct cairn_stats after = now();
    CHECK(after.used_bytes < before);
    for (size_t i = 0; i < CAIRN_CLASS_COUNT; i++)
        CHECK(after.classes[i].slab_count == 0 || after.classes[i].live_count > 0);
    cairn_check();
}

/* --- the limit -------------------------------------------------------------------------------- */

TEST(allocations_stay_within_the_limit)
{
    static char *blocks[4000];
    size_t mib = (size_t)1 << 20;
    cairn_collect();
    size_t limit = now().used_bytes + 20 * mib;
    CHECK(cairn_limit(limit) == 0);
    CHECK(now().limit_bytes == limit / 16384 * 16384);
    CHECK(now().resident_bytes <= limit);
    for (size_t size = 100; size <= 10 * mib; size *= 10) {
        size_t bytes = 0;
        size_t count = 0;
        char *p = NULL;
        while (count < COUNT(blocks) && (p = malloc(size)) != NULL) {
            memset(p, 1, size);
            blocks[count++] = p;
            bytes += size;
        }
        CHECK(count == COUNT(blocks) || errno == ENOMEM);
        CHECK(count == COUNT(blocks) || bytes > 9 * mib);
        CHECK(now().resident_bytes <= limit);
        char *grown = realloc(blocks[0], 30 * mib);
        CHECK(grown == NULL && errno == ENOMEM && blocks[0][0] == 1);
        while (count > 0)
            free(blocks[--count]);
    }
    void *other = malloc(18 * mib); /* reuses the memory of the freed blocks */
    CHECK(other != NULL && now().resident_bytes <= limit);
    free(other);
    CHECK(cairn_limit(0) == limit / 16384 * 16384);
    other = malloc(100 * mib);
    CHECK(other != NULL && now().limit_bytes == 0);
    free(other);
    cairn_check();
}

/* Blocks of this thread use up the limit. The thread frees them, but keeps their memory ready for
 * itself. The new heap must get that memory, because the limit allows no other. */
TEST(at_the_limit_a_heap_gets_memory_that_the_thread_keeps_ready)
{
    static void *blocks[2000];
    size_t count = 0;
    cairn_collect();
    cairn_limit(now().used_bytes + ((size_t)1 << 20));
    while (count < COUNT(blocks) && (blocks[count] = malloc(1000)) != NULL)
        count++;
    CHECK(count > 500 && count < COUNT(blocks));
    while (count > 0)
        free(blocks[--count]);
    struct cairn_heap *heap = cairn_heap_create();
    REQUIRE(heap != NULL);
    CHECK(cairn_heap_malloc(heap, 100) != NULL);
    CHECK(cairn_heap_malloc(heap, 500000) != NULL);
    cairn_heap_destroy(heap);
    cairn_limit(0);
    cairn_check();
}

int main(int argc, char **argv)
{
    require_cairn();
    return test_main(argc, argv);
}
