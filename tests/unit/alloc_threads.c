/* alloc_threads.c - tests threads that hand blocks to each other, start and end, while other
 * threads inspect the allocator. It uses the functions of cairn.h, so that the thread sanitizer can
 * watch. The seed is printed; SEED=… repeats it. */
#include <cairn/cairn.h>

#include "alloc_names.h"

#include "alloc_os.h"
#include "base/random.h"
#include "test.h"

#include "../../src/abi/cairn.c"
#include "../../src/abi/glibc.c"
#include "../../src/abi/malloc.c"

#include <pthread.h>
#include <stdlib.h>

enum {
    BUSY = 4,
    LIVES = 25,
    SLOTS = 300,
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    CALLS = 500, /* number of operations of one thread */
#else
    CALLS = 25000,
#endif
    HANGS_AFTER_S = 200,
};

static uint64_t seed = 1;

#define EXPECT(condition) fake_expect(condition, "not true: " #condition)

/* The head of a block. Up to 4 KiB behind it are filled with the lowest byte of the pattern. */
struct head {
    size_t size;
    uint64_t pattern;
};

static _Atomic(struct head *) slots[SLOTS]; /* the thread that takes a block out owns it */

static size_t any_size(struct random *random)
{
    uint64_t kind = random_below(random, 1000);
    return sizeof(struct head) + (size_t)random_below(random, kind < 800   ? 300
                                                              : kind < 970 ? 4000
                                                              : kind < 996 ? 100000
                                                                           : 3 << 20);
}

static size_t rest_of(const struct head *block)
{
    return block->size - sizeof *block < 4096 ? block->size - sizeof *block : 4096;
}

static struct head *filled(struct head *block, size_t size, struct random *random)
{
    block->size = size;
    block->pattern = random_next(random);
    memset(block + 1, (int)(block->pattern & 255), rest_of(block));
    return block;
}

static void verify(const struct head *block)
{
    const unsigned char *rest = (const unsigned char *)(block + 1);
    size_t size = rest_of(block);
    EXPECT(cairn_usable_size(block) >= block->size);
    EXPECT(size == 0 ||
           (rest[0] == (block->pattern & 255) && memcmp(rest, rest + 1, size - 1) == 0));
}

static struct head *allocate(struct cairn_heap *heap, struct random *random)
{
    size_t size = any_size(random);
    struct head *block;
    switch (random_below(random, 8)) {
    default:
        block = cairn_malloc(size);
        break;
    case 0:
        block = cairn_calloc(1, size);
        EXPECT(block->size == 0 && block->pattern == 0);
        break;
    case 1:
        block = cairn_aligned_alloc((size_t)16 << random_below(random, 10), size);
        break;
    case 2:
        block = heap != NULL ? cairn_heap_malloc(heap, size) : cairn_malloc(size);
        break;
    }
    EXPECT(block != NULL);
    return filled(block, size, random);
}

static struct head *resize(struct head *block, struct random *random)
{
    verify(block);
    size_t size = any_size(random);
    if (block->size > 1 << 20 && block->size < 8 << 20)
        size = block->size + block->size / 4; /* large blocks grow by moving their pages */
    struct head was = *block;
    block = cairn_realloc(block, size);
    EXPECT(block != NULL && block->size == was.size && block->pattern == was.pattern);
    return filled(block, size, random);
}

static void operate(struct random *random)
{
    _Atomic(struct head *) *slot = &slots[random_below(random, SLOTS)];
    struct head *block = atomic_exchange_explicit(slot, NULL, memory_order_acquire);
    if (block == NULL) {
        block = allocate(NULL, random);
    } else if (random_below(random, 4) == 0) {
        block = resize(block, random);
    } else {
        verify(block);
        cairn_free(block);
        block = NULL;
    }
    struct head *before = atomic_exchange_explicit(slot, block, memory_order_acq_rel);
    if (before != NULL) {
        verify(before);
        cairn_free(before);
    }
}

static void *thread_life(void *argument)
{
    struct random random = random_of(*(uint64_t *)argument);
    struct cairn_heap *heap = cairn_heap_create();
    for (unsigned i = 0; i < CALLS; i++) {
        operate(&random);
        if (i % 64 == 0) { /* these blocks outlive their heap */
            _Atomic(struct head *) *slot = &slots[random_below(&random, SLOTS)];
            struct head *before = atomic_exchange(slot, allocate(heap, &random));
            if (before != NULL)
                cairn_free(before);
        }
    }
    if (random_below(&random, 2) == 0)
        cairn_collect();
    cairn_heap_release(heap);
    return NULL;
}

static void *live_many_lives(void *argument)
{
    struct random random = random_of(*(uint64_t *)argument);
    for (unsigned i = 0; i < LIVES; i++) {
        uint64_t of_life = random_next(&random);
        pthread_t id;
        EXPECT(pthread_create(&id, NULL, thread_life, &of_life) == 0 &&
               pthread_join(id, NULL) == 0);
    }
    return NULL;
}

static _Atomic unsigned busy;

static void *be_busy(void *argument)
{
    live_many_lives(argument);
    atomic_fetch_sub(&busy, 1);
    return NULL;
}

static void while_threads_are_busy(void (*look)(struct random *random))
{
    alarm(HANGS_AFTER_S);
    pthread_t ids[BUSY];
    uint64_t seeds[BUSY];
    atomic_store(&busy, BUSY);
    for (unsigned i = 0; i < BUSY; i++) {
        seeds[i] = seed * BUSY + i;
        REQUIRE(pthread_create(&ids[i], NULL, be_busy, &seeds[i]) == 0);
    }
    struct random random = random_of(~seed);
    while (atomic_load(&busy) > 0)
        look(&random);
    for (unsigned i = 0; i < BUSY; i++)
        CHECK(pthread_join(ids[i], NULL) == 0);
    for (unsigned i = 0; i < SLOTS; i++) {
        struct head *block = atomic_exchange(&slots[i], NULL);
        if (block != NULL)
            verify(block);
        cairn_free(block);
    }
    cairn_collect();
    cairn_check();
    struct cairn_stats stats;
    cairn_statistics(&stats);
    CHECK(stats.live_count == 0 && stats.large_count == 0);
    alarm(0);
}

static void operate_too(struct random *random)
{
    operate(random);
}

TEST(blocks_go_from_thread_to_thread_and_none_is_lost)
{
    while_threads_are_busy(operate_too);
}

static void *use_a_block(void *unused)
{
    cairn_free(cairn_malloc(48));
    return unused;
}

/* Returns how many slabs a new thread makes for one block. */
static size_t made_by_thread(void)
{
    struct cairn_stats before;
    struct cairn_stats after;
    pthread_t id;
    cairn_statistics(&before);
    EXPECT(pthread_create(&id, NULL, use_a_block, NULL) == 0 && pthread_join(id, NULL) == 0);
    cairn_statistics(&after);
    CHECK(after.thread_count == before.thread_count);
    cairn_check();
    return after.slabs_made - before.slabs_made;
}

TEST(a_new_thread_reuses_the_slabs_of_the_one_that_ended)
{
    cairn_collect();
    CHECK(made_by_thread() == 1);
    CHECK(made_by_thread() == 0);
    cairn_collect(); /* also frees the slabs that the ended thread left */
    CHECK(made_by_thread() == 1);
}

enum { LEFT = 200, LEFT_BYTES = 2000 };

static struct {
    pthread_barrier_t both;
    char *blocks[2][LEFT];
} left;

/* Allocates LEFT blocks, frees each second one, and ends. */
static void *leave_half(void *argument)
{
    size_t self = (uintptr_t)argument;
    for (size_t i = 0; i < LEFT; i++)
        left.blocks[self][i] = malloc(LEFT_BYTES);
    for (size_t i = 0; i < LEFT; i += 2)
        free(left.blocks[self][i]);
    pthread_barrier_wait(&left.both);
    return NULL;
}

TEST(a_thread_adopts_slabs_of_ended_threads_before_it_makes_new_ones)
{
    pthread_t ids[2];
    pthread_barrier_init(&left.both, NULL, 2);
    for (size_t i = 0; i < 2; i++)
        REQUIRE(pthread_create(&ids[i], NULL, leave_half, (void *)i) == 0);
    for (size_t i = 0; i < 2; i++)
        pthread_join(ids[i], NULL);
    cairn_collect(); /* the heaps of both threads are idle now */
    static struct cairn_stats before, after;
    cairn_statistics(&before);
    char *blocks[LEFT / 2];
    for (size_t i = 0; i < COUNT_OF(blocks); i++)
        blocks[i] = malloc(LEFT_BYTES);
    cairn_statistics(&after);
    CHECK(CAIRN_HARDENED || after.slabs_adopted > before.slabs_adopted);
    for (size_t i = 0; i < COUNT_OF(blocks); i++)
        free(blocks[i]);
    for (size_t i = 1; i < LEFT; i += 2) {
        free(left.blocks[0][i]);
        free(left.blocks[1][i]);
    }
}

static void give_back(struct random *random)
{
    cairn_purge((size_t)random_below(random, 64) << 16);
    cairn_collect();
    cairn_limit((size_t)1 << 32);
    cairn_limit(0);
    usleep(200);
}

enum { MANY = 60, FIRST = 8, LINE = 64, MORE = 100, SLACK = 8 };

static struct {
    pthread_barrier_t allocated;
    pthread_barrier_t go_on;
    char *blocks[MANY][FIRST];
    bool has_heap[MANY];
    bool got_heap[MANY];
} starts;

static size_t first_size(size_t i)
{
    return (size_t)24 << i;
}

/* Allocates FIRST blocks, the last of 3 KB. Then allocates and frees MORE blocks. */
static void *start(void *argument)
{
    size_t self = (uintptr_t)argument;
    for (size_t i = 0; i < FIRST; i++) {
        starts.blocks[self][i] = malloc(first_size(i));
        memset(starts.blocks[self][i], (int)self, first_size(i));
    }
    starts.has_heap[self] = thread_has_heap();
    pthread_barrier_wait(&starts.allocated);
    pthread_barrier_wait(&starts.go_on);
    for (int i = 0; i < MORE; i++) {
        void *volatile p = malloc(100);
        free(p);
    }
    starts.got_heap[self] = thread_has_heap();
    pthread_barrier_wait(&starts.allocated);
    return NULL;
}

static size_t count_heaps(void)
{
    size_t count = 0;
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next)
        count++;
    return count;
}

/* Returns whether the blocks of thread `a` and of thread `b` share a cache line. */
static bool share_line(size_t a, size_t b)
{
    for (size_t i = 0; i < FIRST; i++)
        for (size_t k = 0; k < FIRST; k++) {
            uintptr_t one = (uintptr_t)starts.blocks[a][i];
            uintptr_t other = (uintptr_t)starts.blocks[b][k];
            if (one / LINE <= (other + first_size(k) - 1) / LINE &&
                other / LINE <= (one + first_size(i) - 1) / LINE)
                return true;
        }
    return false;
}

TEST(many_threads_share_a_heap_for_their_first_blocks_but_no_cache_line)
{
    pthread_t ids[MANY];
    size_t before = count_heaps();
    pthread_barrier_init(&starts.allocated, NULL, MANY + 1);
    pthread_barrier_init(&starts.go_on, NULL, MANY + 1);
    for (size_t i = 0; i < MANY; i++)
        REQUIRE(pthread_create(&ids[i], NULL, start, (void *)i) == 0);
    pthread_barrier_wait(&starts.allocated);
    size_t most = before > HEAP_SCARCE_LEAST ? before : HEAP_SCARCE_LEAST;
    /* Threads that begin at the same moment may all see too few heaps in use. */
    CHECK(CAIRN_HARDENED || count_heaps() <= most + SLACK);
    size_t without = 0;
    for (size_t a = 0; a < MANY; a++) {
        without += !starts.has_heap[a];
        for (size_t b = 0; b < a; b++)
            CHECK(!share_line(a, b));
        for (size_t i = 0; i < FIRST; i++)
            for (size_t k = 0; k < first_size(i); k++)
                CHECK(starts.blocks[a][i][k] == (char)a);
    }
    CHECK(CAIRN_HARDENED || without >= MANY - most - SLACK);
    pthread_barrier_wait(&starts.go_on);
    pthread_barrier_wait(&starts.allocated);
    for (size_t i = 0; i < MANY; i++) {
        pthread_join(ids[i], NULL);
        CHECK(starts.got_heap[i]);
        for (size_t k = 0; k < FIRST; k++)
            free(starts.blocks[i][k]);
    }
    heap_check_lists();
}

TEST(memory_can_be_given_back_while_threads_are_busy)
{
    while_threads_are_busy(give_back);
}

static bool is_aligned(void *block, size_t usable_bytes, void *context)
{
    (void)context;
    return (uintptr_t)block % 16 == 0 && usable_bytes % 16 == 0;
}

static void look(struct random *random)
{
    static char text[CAIRN_JSON_BYTES];
    EXPECT(cairn_statistics_json(text, sizeof text) > 0);
    struct mallinfo2 info = mallinfo2();
    EXPECT(info.arena == info.uordblks + info.fordblks);
    EXPECT(cairn_walk(is_aligned, NULL));
    cairn_check();
    usleep((unsigned)random_below(random, 500));
}

TEST(statistics_walks_and_checks_work_while_threads_are_busy)
{
    while_threads_are_busy(look);
}

int main(int argc, char **argv)
{
    if (getenv("SEED") != NULL)
        seed = strtoull(getenv("SEED"), NULL, 10);
    printf("seed %llu; set SEED=… to repeat another\n", (unsigned long long)seed);
    return test_main(argc, argv);
}
