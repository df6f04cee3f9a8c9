/* alloc_site.c - tests the call sites of large blocks: each block counts exactly once, however it
 * was allocated and freed. */
#include <cairn/cairn.h>

#include "alloc_names.h"

#include "alloc/site.h"

#include "alloc/large.h"
#include "alloc_os.h"
#include "test.h"

#include "../../src/abi/cairn.c"
#include "../../src/abi/glibc.c"
#include "../../src/abi/malloc.c"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>

enum {
    LARGE = 100000, /* 7 slices */
    MOVED = 8,
    THREADS = 4,
    ROUNDS = SITE_ALL - 10,
    MANY = SITE_MOST + 100,
    SAMPLED = 200000,
};

/* Observations from before site counting began. */
static struct {
    void *block;
    size_t kept_slices;
    bool counts;
    bool reports;
} before_counting;

/* Resets the sampling of the calling thread, so that all of its next blocks are counted. */
static void count_all(void)
{
    alloc_free(alloc_malloc(1)); /* makes sure that the thread has a heap */
    thread_own_heap()->site_turn = (struct site_turn){0};
}

/* Returns a made-up return address in the program. */
static const void *place(uintptr_t number)
{
    return (const void *)(0x10000 + 16 * number);
}

static uint64_t ended(const struct site *site)
{
    uint64_t lives = 0;
    for (unsigned i = 0; i < SITE_LIVES; i++)
        lives += site->lives[i];
    return lives;
}

static void add(struct site *sum, const struct site *site)
{
    sum->address = site->address;
    sum->slices = site->slices;
    sum->counted += site->counted;
    sum->variance += site->variance;
    sum->blocks += site->blocks;
    sum->bytes += site->bytes;
    sum->hits += site->hits;
    sum->freed += site->freed;
    sum->live_bytes += site->live_bytes;
    sum->lives[0] += ended(site);
}

/* Returns the sum of the table's rows that have the call address `caller`, whatever their block
 * lengths and stack depths. If `caller` is NULL, returns the sum of all rows, including the row of
 * the calls that have no row of their own. */
static struct site of(const void *caller)
{
    struct site sum = {0};
    site_lock();
    for (const struct site *site = site_next(NULL); site != NULL; site = site_next(site))
        if (caller == NULL || site->address == (uintptr_t)caller)
            add(&sum, site);
    if (caller == NULL)
        add(&sum, site_others());
    site_unlock();
    return sum;
}

static unsigned occurrences(const char *text, const char *what)
{
    unsigned count = 0;
    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what))
        count++;
    return count;
}

static void before_anybody_counts(void)
{
    static char json[CAIRN_JSON_BYTES];
    before_counting.block = alloc_malloc_slow(LARGE, place(1));
    alloc_free(alloc_malloc_slow(LARGE, place(1)));
    before_counting.kept_slices = thread_own_heap()->runs.slices;
    before_counting.counts = site_is_counted();
    before_counting.reports =
        cairn_statistics_json(json, sizeof json) == 0 || strstr(json, "\"sites\"") != NULL;
    site_check();
}

TEST(nothing_is_counted_before_counting_begins)
{
    CHECK(!before_counting.counts && !before_counting.reports);
    /* The freed block was treated as usual: the thread kept its run for the next block. */
    CHECK(before_counting.kept_slices == large_slices(LARGE));
}

TEST(a_block_counts_for_its_site_from_the_call_to_the_free)
{
    REQUIRE(alloc_count_sites() && alloc_count_sites());
    void *p = alloc_malloc_slow(LARGE, place(2));
    REQUIRE(p != NULL);
    size_t bytes = alloc_usable_size(p);
    struct site site = of(place(2));
    CHECK(site.slices == large_slices(LARGE));
    CHECK(site.blocks == 1 && site.bytes == bytes && site.counted == 1 && site.variance == 0);
    CHECK(site.freed == 0 && site.live_bytes == bytes && site.lives[0] == 0);
    alloc_free(p);
    site = of(place(2));
    CHECK(site.blocks == 1 && site.bytes == bytes);
    CHECK(site.freed == 1 && site.live_bytes == 0 && site.lives[0] == 1);
    site_check();
}

/* A site is known by its return address. The return address always lies behind the first byte of
 * the calling program or library, and may lie one byte behind its last. */
TEST(a_site_lies_within_the_object_that_made_the_call)
{
    REQUIRE(alloc_count_sites());
    alloc_free(alloc_malloc_slow(LARGE, place(2)));
    uintptr_t address = (uintptr_t)place(2);
    CHECK(site_is_within(address - 1, address));
    CHECK(!site_is_within(address, address + 1));
    CHECK(!site_is_within(1, 4096));
}

/* When a block is freed, the record of its run must forget the site. If the run's next block is not
 * counted, the free of that block can then take the fast path. */
TEST(a_freed_block_belongs_to_no_site)
{
    REQUIRE(alloc_count_sites());
    void *p = alloc_malloc_slow(LARGE, place(2));
    REQUIRE(p != NULL);
    struct slab *slab = slab_at(region_index(p));
    CHECK(site_keeps(atomic_load(&slab->owner)) && slab->site != 0);
    alloc_free(p);
    CHECK(atomic_load(&slab->owner) == NULL && slab->site == 0);
}

TEST(a_run_that_the_thread_had_kept_is_a_hit)
{
    REQUIRE(alloc_count_sites());
    alloc_free(alloc_malloc(1)); /* makes sure that the thread has a heap */
    heap_collect(thread_own_heap());
    for (unsigned i = 0; i < 3; i++) {
        unsigned char *p = alloc_calloc_slow(1, LARGE, place(3));
        REQUIRE(p != NULL);
        CHECK(p[0] == 0 && memcmp(p, p + 1, LARGE - 1) == 0);
        memset(p, 0xff, LARGE);
        CHECK(of(place(3)).blocks == i + 1 && of(place(3)).hits == i);
        alloc_free(p);
    }
    CHECK(thread_own_heap()->runs.slices == large_slices(LARGE));
    heap_check(thread_own_heap());
    site_check();
}

TEST(a_site_includes_the_length_and_small_blocks_have_no_site)
{
    REQUIRE(alloc_count_sites());
    uint32_t before = site_count();
    alloc_free(alloc_malloc_slow(SIZE_CLASS_BYTES_MAX, place(4)));
    CHECK(of(place(4)).blocks == 0 && site_count() == before);
    alloc_free(alloc_malloc_slow(SIZE_CLASS_BYTES_MAX + 1, place(4)));
    alloc_free(alloc_malloc_slow(SIZE_CLASS_BYTES_MAX + 2, place(4)));
    CHECK(of(place(4)).blocks == 2 && site_count() == before + 1);
    alloc_free(alloc_malloc_slow(LARGE, place(4)));
    CHECK(of(place(4)).blocks == 3 && site_count() == before + 2);
    alloc_free(alloc_aligned_slow((size_t)1 << 20, 100, place(4)));
    CHECK(of(place(4)).blocks == 4 && site_count() == before + 3);
}

TEST(blocks_from_before_counting_belong_to_no_site)
{
    REQUIRE(alloc_count_sites() && before_counting.block != NULL);
    struct site before = of(NULL);
    before_counting.block = alloc_realloc_large(before_counting.block, LARGE / 2, place(5));
    CHECK(of(NULL).blocks == before.blocks && of(NULL).live_bytes == before.live_bytes);
    alloc_free(before_counting.block);
    CHECK(of(NULL).freed == before.freed && of(NULL).live_bytes == before.live_bytes);
    CHECK(of(place(1)).blocks == 0 && of(place(5)).blocks == 0);
    site_check();
}

/* Allocates blocks side by side, so that most cannot grow in place. Growing copies a block, or from
 * 1 MiB on moves its pages. */
static void grow(size_t slices, const void *first, const void *second)
{
    void *blocks[MOVED];
    uint64_t moved = 0;
    for (unsigned i = 0; i < MOVED; i++) {
        blocks[i] = alloc_realloc_large(NULL, slices * SLICE_BYTES, first);
        REQUIRE(blocks[i] != NULL);
    }
    CHECK(of(first).blocks == MOVED && of(first).live_bytes == MOVED * slices * SLICE_BYTES);
    size_t live_bytes = 0;
    for (unsigned i = 0; i < MOVED; i++) {
        void *before = blocks[i];
        blocks[i] = alloc_realloc_large(before, 2 * slices * SLICE_BYTES, second);
        REQUIRE(blocks[i] != NULL);
        moved += blocks[i] != before;
        live_bytes += alloc_usable_size(blocks[i]);
    }
    CHECK(moved > 0 && of(second).blocks == moved && of(first).freed == moved);
    CHECK(of(first).live_bytes + of(second).live_bytes == live_bytes);
    site_check();
    for (unsigned i = 0; i < MOVED; i++) { /* shrinks in place */
        void *before = blocks[i];
        blocks[i] = alloc_realloc_large(before, 3 * SLICE_BYTES, place(6));
        CHECK(blocks[i] == before);
    }
    CHECK(of(first).live_bytes + of(second).live_bytes == MOVED * 3 * SLICE_BYTES);
    CHECK(of(place(6)).blocks == 0);
    for (unsigned i = 0; i < MOVED; i++)
        alloc_free(blocks[i]);
    CHECK(of(first).freed == MOVED && of(second).freed == moved);
    CHECK(of(first).live_bytes == 0 && of(second).live_bytes == 0);
    site_check();
    page_heap_check();
}

TEST(a_block_that_moves_belongs_to_the_site_of_the_realloc)
{
    REQUIRE(alloc_count_sites());
    heap_collect(thread_own_heap());
    grow(5, place(7), place(8));
    heap_collect(thread_own_heap());
    grow(64, place(9), place(10));
}

TEST(a_large_block_that_becomes_small_is_given_back)
{
    REQUIRE(alloc_count_sites());
    void *p = alloc_malloc_slow(LARGE, place(11));
    REQUIRE(p != NULL);
    p = alloc_realloc_small(p, 100);
    CHECK(p != NULL && alloc_usable_size(p) < SLICE_BYTES);
    CHECK(of(place(11)).freed == 1 && of(place(11)).live_bytes == 0);
    p = alloc_realloc_large(p, LARGE, place(12));
    CHECK(p != NULL && of(place(12)).blocks == 1);
    alloc_free(p);
    CHECK(of(place(12)).freed == 1);
}

TEST(every_name_counts_once)
{
    REQUIRE(alloc_count_sites());
    struct site before = of(NULL);
    void *blocks[] = {
        malloc(LARGE),
        calloc(1, LARGE),
        realloc(NULL, LARGE),
        reallocarray(NULL, 1, LARGE),
        aligned_alloc(64, LARGE),
        memalign(SLICE_BYTES, 1),
        valloc(LARGE),
        pvalloc(LARGE),
        cairn_malloc(LARGE),
        cairn_calloc(LARGE, 1),
        cairn_realloc(NULL, LARGE),
        cairn_aligned_alloc(64, LARGE),
    };
    void *aligned_block = NULL;
    CHECK(posix_memalign(&aligned_block, 64, LARGE) == 0);
    CHECK(of(NULL).blocks == before.blocks + COUNT_OF(blocks) + 1);
    for (size_t i = 0; i < COUNT_OF(blocks); i++)
        free(blocks[i]);
    cairn_free(aligned_block);
    CHECK(of(NULL).freed == before.freed + COUNT_OF(blocks) + 1);
    CHECK(of(NULL).live_bytes == before.live_bytes);
    CHECK(realloc(malloc(LARGE), 0) == NULL);
    free(realloc(NULL, 0));
    CHECK(of(NULL).freed == before.freed + COUNT_OF(blocks) + 2);
    site_check();
}

TEST(blocks_of_a_shared_heap_are_counted_and_destroyed_with_it)
{
    REQUIRE(alloc_count_sites());
    struct site before = of(NULL);
    struct cairn_heap *heap = cairn_heap_create();
    REQUIRE(heap != NULL);
    void *freed = cairn_heap_malloc(heap, LARGE);
    void *kept = cairn_heap_calloc(heap, 1, LARGE);
    kept = cairn_heap_realloc(heap, kept, 3 * LARGE);
    CHECK(freed != NULL && kept != NULL && cairn_heap_aligned_alloc(heap, 1 << 16, 1) != NULL);
    CHECK(cairn_heap_malloc(heap, 100) != NULL);
    cairn_free(freed);
    struct site now = of(NULL);
    uint64_t live = now.blocks - now.freed - (before.blocks - before.freed);
    CHECK(now.blocks >= before.blocks + 3 && live == 2);
    cairn_heap_destroy(heap);
    CHECK(of(NULL).blocks == of(NULL).freed && of(NULL).live_bytes == before.live_bytes);
    cairn_check();
}

static void *come_and_go(void *number)
{
    count_all();
    void *kept = NULL;
    for (unsigned i = 0; i < ROUNDS; i++) {
        void *p = alloc_malloc_slow(LARGE + i % 3 * SLICE_BYTES, place((uintptr_t)number));
        alloc_free(kept);
        kept = p;
    }
    alloc_free(kept);
    return NULL;
}

TEST(threads_count_every_block)
{
    REQUIRE(alloc_count_sites());
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, come_and_go, (void *)(20 + i % 2)) == 0);
    for (unsigned i = 0; i < 20; i++)
        site_check();
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (uintptr_t i = 20; i < 22; i++) {
        struct site site = of(place(i));
        CHECK(site.blocks == THREADS / 2 * ROUNDS && site.freed == site.blocks &&
              site.live_bytes == 0);
        CHECK(site.lives[0] == site.blocks);
    }
    site_check();
}

/* Three callers take turns to allocate. Two of them allocate a quarter of the blocks each, and the
 * third one half. */
static void come_and_go_often(void)
{
    count_all();
    for (unsigned i = 0; i < SAMPLED; i++)
        alloc_free(alloc_malloc_slow(LARGE, place(i % 4 == 0 ? 50 : i % 4 == 1 ? 51 : 52)));
}

TEST(of_many_blocks_a_sample_is_counted_and_weighted)
{
    REQUIRE(alloc_count_sites());
    come_and_go_often();
    const unsigned share[] = {4, 4, 2};
    uint64_t counted = 0;
    for (unsigned i = 0; i < COUNT_OF(share); i++) {
        struct site site = of(place(50 + i));
        double expected = (double)SAMPLED / share[i], off = (double)site.blocks - expected;
        /* The estimate is off by less than five standard deviations, and by less than 50 %. */
        CHECK(off * off < 25.0 * (double)site.variance);
        CHECK(off * off < 0.25 * expected * expected);
        CHECK(site.freed == site.blocks && site.live_bytes == 0 && site.lives[0] == site.blocks);
        CHECK(site.bytes == site.blocks * large_slices(LARGE) * SLICE_BYTES);
        CHECK(site.hits + 10 > site.blocks);
        counted += site.counted;
    }
    CHECK(counted > SITE_ALL && counted < SAMPLED / 20);
    count_all();
    REQUIRE(of(place(50)).counted > 0);
    site_check();
}

/* A counted block is freed by the slow path and an uncounted one by the fast path, also when
 * sampling has changed in the meantime. */
TEST(blocks_that_count_and_blocks_that_do_not_lie_side_by_side)
{
    REQUIRE(alloc_count_sites());
    static void *blocks[64];
    struct site before = of(NULL);
    for (unsigned round = 0; round < 100; round++) {
        thread_own_heap()->site_turn.counted = round % 4 * SITE_ALL;
        for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
            void *p = alloc_malloc_slow(LARGE + i % 5 * SLICE_BYTES, place(60));
            REQUIRE(p != NULL);
            blocks[i] =
                i % 3 == 0 ? alloc_realloc_large(p, 2 * LARGE + i % 7 * SLICE_BYTES, place(61)) : p;
        }
        heap_check(thread_own_heap());
        site_check();
        for (unsigned i = 0; i < COUNT_OF(blocks); i++)
            alloc_free(blocks[(i * 5 + round) % COUNT_OF(blocks)]);
    }
    count_all();
    struct site now = of(NULL);
    CHECK(now.blocks > before.blocks && now.blocks - now.freed == before.blocks - before.freed);
    CHECK(now.live_bytes == before.live_bytes);
    cairn_check();
}

TEST(a_heap_that_is_given_up_leaves_blocks_that_still_count)
{
    REQUIRE(alloc_count_sites());
    struct site before = of(NULL);
    struct heap *heap = shared_heap_create();
    REQUIRE(heap != NULL);
    bool zero;
    void *p = shared_heap_allocate(heap, LARGE, 1, &zero);
    REQUIRE(p != NULL);
    site_take(slab_at(region_index(p)), large_slices(LARGE), place(70), false, NULL);
    shared_heap_release(heap);
    CHECK(of(place(70)).blocks == 1 && of(place(70)).freed == 0);
    alloc_free(p);
    CHECK(of(place(70)).freed == 1 && of(NULL).live_bytes == before.live_bytes);
    alloc_free(alloc_malloc_slow(LARGE, place(71)));
    cairn_check();
}

/* Runs the checks in a child process. Returns whether they hold. */
static bool holds_in_a_child(void check(void))
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        check();
        _exit(test_failed ? 1 : 0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void count_one(void)
{
    uint64_t before = of(place(30)).blocks;
    alloc_free(alloc_malloc_slow(LARGE, place(30)));
    CHECK(of(place(30)).blocks == before + 1);
    site_check();
}

static atomic_bool done;

static void *come_and_go_alone(void *number)
{
    come_and_go(number);
    atomic_store(&done, true);
    return NULL;
}

/* The fork may happen at any point of the other thread. That thread is detached, because the child
 * has no such thread to join. */
TEST(a_child_finds_the_table_open_and_goes_on_counting)
{
    REQUIRE(alloc_count_sites());
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, come_and_go_alone, (void *)31) == 0);
    pthread_detach(thread);
    for (unsigned i = 0; i < 10; i++)
        CHECK(holds_in_a_child(count_one));
    while (!atomic_load(&done))
        sched_yield();
    CHECK(of(place(30)).blocks == 0);
}

static void fill_the_table(void)
{
    static char json[CAIRN_SITES_BYTES];
    uint64_t others = site_others()->blocks;
    uint32_t known = site_count();
    alloc_free(alloc_malloc(LARGE)); /* its caller is unknown */
    CHECK(site_others()->blocks == others + 1 && site_count() == known);
    for (uintptr_t i = 0; i < MANY; i++) {
        count_all();
        alloc_free(alloc_malloc_slow(LARGE, place(1000 + i)));
    }
    CHECK(site_count() == SITE_MOST);
    CHECK(site_others()->blocks == others + 1 + known + MANY - SITE_MOST);
    CHECK(site_others()->variance == 0 && site_others()->freed == site_others()->blocks);
    site_check();

    size_t length = cairn_statistics_json(json, CAIRN_JSON_BYTES);
    unsigned reported = occurrences(json, "\"address\":");
    REQUIRE(length > 0 && length < CAIRN_JSON_BYTES);
    CHECK(reported > 5 && reported < SITE_MOST && strcmp(json + length - 3, "}]}") == 0);
    length = cairn_statistics_json(json, sizeof json);
    REQUIRE(length > CAIRN_JSON_BYTES && length < sizeof json);
    CHECK(occurrences(json, "\"address\":") == SITE_MOST && strcmp(json + length - 3, "}]}") == 0);
    CHECK(strstr(json, "\"site_count\":768,") != NULL);
    CHECK(cairn_statistics_json(json, 100) == 0);
    unsigned whole = 0;
    /* The result is either nothing or a complete document. */
    for (size_t room = 100; room < CAIRN_JSON_BYTES; room += 7) {
        length = cairn_statistics_json(json, room);
        CHECK(length < room);
        CHECK(length == 0 || (occurrences(json, "{") == occurrences(json, "}") &&
                              strcmp(json + length - 2, "]}") == 0));
        whole += length != 0;
    }
    CHECK(whole > 100);
}

TEST_WITHOUT_RACES(a_full_table_counts_new_sites_in_the_row_of_others)
{
    REQUIRE(alloc_count_sites());
    CHECK(holds_in_a_child(fill_the_table)); /* in a child, because a full table stays full */
}

int main(int argc, char **argv)
{
    before_anybody_counts();
    return test_main(argc, argv);
}
