#define _GNU_SOURCE 1

#include "arena_os.h"
#include "test.h"

#include <cairn/arena.h>

#include <pthread.h>

static struct cairn_pool *with(struct cairn_pool_options options)
{
    return cairn_pool_create_with(&options);
}

/* Covers sizes up to 200 and alignments up to 1024. Objects are disjoint, aligned, writable, and no
 * larger than necessary. */
TEST(objects_of_any_size_and_alignment_are_disjoint)
{
    for (size_t size = 1; size <= 200; size += 1 + size / 20) {
        for (size_t alignment = 1; alignment <= 1024; alignment *= 2) {
            struct cairn_pool *pool = cairn_pool_create(size, alignment);
            char *objects[100];
            for (size_t i = 0; i < COUNT_OF(objects); i++) {
                objects[i] = cairn_pool_alloc(pool);
                CHECK(objects[i] != NULL && (uintptr_t)objects[i] % alignment == 0);
                memset(objects[i], (int)i, size);
            }
            for (size_t i = 0; i < COUNT_OF(objects); i++)
                CHECK(objects[i][0] == (char)i && objects[i][size - 1] == (char)i);
            if (pool->direct) {
                size_t unit = alignment > sizeof(void *) ? alignment : sizeof(void *);
                CHECK(cairn_pool_statistics(pool).object_bytes == (size + unit - 1) / unit * unit);
            }
            cairn_pool_check(pool);
            cairn_pool_destroy(pool);
        }
    }
    CHECK(fake_os.mapped_bytes == 0);
}

TEST(without_an_alignment_it_follows_from_the_size)
{
    struct cairn_pool *pool = cairn_pool_create(24, 0);
    CHECK(!pool->direct || cairn_pool_statistics(pool).object_bytes == 24);
    cairn_pool_destroy(pool);
    pool = cairn_pool_create(48, 0);
    for (unsigned i = 0; i < 10; i++)
        CHECK((uintptr_t)cairn_pool_alloc(pool) % 16 == 0);
    cairn_pool_destroy(pool);
}

TEST(options_that_make_no_sense_are_refused)
{
    CHECK(cairn_pool_create(0, 0) == NULL);
    CHECK(cairn_pool_create(8, 3) == NULL);
    CHECK(cairn_pool_create(SIZE_MAX, 8) == NULL);
    for (unsigned shift = 40; shift < 64; shift++) {
        size_t alignment = (size_t)1 << shift;
        for (size_t size = 8; size <= PTRDIFF_MAX;
             size = size < PTRDIFF_MAX ? PTRDIFF_MAX : SIZE_MAX) {
            struct cairn_pool *pool = cairn_pool_create(size, alignment);
            bool refused = pool == NULL || cairn_pool_alloc(pool) == NULL;
            /* An object of 8 bytes with an alignment below 2^47 may fit into the address space. */
            CHECK(refused || (size == 8 && shift < 47));
            cairn_pool_destroy(pool);
        }
    }
    cairn_pool_destroy(NULL);
    CHECK(fake_os.mapped_bytes == 0);
}

TEST(the_object_freed_last_is_handed_out_first)
{
    struct cairn_pool *pool = cairn_pool_create(32, 0);
    void *objects[100];
    for (size_t i = 0; i < COUNT_OF(objects); i++)
        objects[i] = cairn_pool_alloc(pool);
    for (size_t i = 0; i < COUNT_OF(objects); i++)
        cairn_pool_free(pool, objects[i]);
    cairn_pool_free(pool, NULL);
    if (pool->direct)
        for (size_t i = COUNT_OF(objects); i-- > 0;)
            CHECK(cairn_pool_alloc(pool) == objects[i]);
    cairn_pool_destroy(pool);
}

TEST(freed_objects_are_reused_before_memory_grows)
{
    struct cairn_pool *pool = cairn_pool_create(100, 0);
    static void *objects[10000];
    size_t reserved = 0;
    for (unsigned round = 0; round < 20; round++) {
        for (size_t i = 0; i < COUNT_OF(objects); i++)
            objects[i] = cairn_pool_alloc(pool);
        CHECK(cairn_pool_statistics(pool).used_count == COUNT_OF(objects));
        for (size_t i = 0; i < COUNT_OF(objects); i++)
            cairn_pool_free(pool, objects[(i * 7919) % COUNT_OF(objects)]);
        struct cairn_pool_stats stats = cairn_pool_statistics(pool);
        CHECK(stats.used_count == 0);
        /* Objects are made ready in batches of 4 KiB, which hold at most 40 objects. */
        CHECK(stats.high_water_count >= COUNT_OF(objects) &&
              stats.high_water_count < COUNT_OF(objects) + 41);
        CHECK(round == 0 || stats.reserved_bytes == reserved);
        reserved = stats.reserved_bytes;
    }
    cairn_pool_check(pool);
    cairn_pool_destroy(pool);
}

TEST(a_reset_pool_reuses_the_same_memory)
{
    struct cairn_pool *pool = cairn_pool_create(64, 0);
    void *first = cairn_pool_alloc(pool);
    size_t reserved = 0;
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < 5000; i++)
            memset(cairn_pool_alloc(pool), 1, 64);
        CHECK(round == 0 || cairn_pool_statistics(pool).reserved_bytes == reserved);
        cairn_pool_check(pool);
        reserved = cairn_pool_statistics(pool).reserved_bytes;
        cairn_pool_reset(pool);
        cairn_pool_check(pool);
        CHECK(cairn_pool_statistics(pool).used_count == 0);
        CHECK(cairn_pool_alloc(pool) == first);
    }
    cairn_pool_destroy(pool);
}

TEST(a_pool_takes_from_the_arena_it_was_given_and_obeys_its_limit)
{
    struct cairn_arena *arena =
        cairn_arena_create_with(&(struct cairn_arena_options){.limit_bytes = 1 << 20});
    struct cairn_arena_point mark = cairn_arena_mark(arena);
    struct cairn_pool *pool =
        with((struct cairn_pool_options){.object_bytes = 100, .arena = arena});
    size_t count = 0;
    while (cairn_pool_alloc(pool) != NULL)
        count++;
    CHECK(count > (1 << 20) / 200 && count <= (1 << 20) / 100);
    CHECK(cairn_pool_statistics(pool).used_count == count);
    cairn_pool_check(pool);
    cairn_pool_destroy(pool);
    cairn_arena_rewind(arena, mark);
    CHECK(cairn_arena_alloc(arena, 300 << 10) != NULL);
    cairn_arena_destroy(arena);
    CHECK(fake_os.mapped_bytes == 0);
}

TEST(a_pool_fits_into_a_small_fixed_arena)
{
    static char memory[2000];
    struct cairn_arena *arena = cairn_arena_create_over(memory, sizeof memory);
    struct cairn_pool *pool = with((struct cairn_pool_options){.object_bytes = 16, .arena = arena});
    CHECK(pool != NULL && cairn_pool_alloc(pool) != NULL);
    cairn_pool_destroy(pool);
    cairn_arena_destroy(arena);
}

/* Threads allocate objects, mark them, exchange them through a common table, and free those of
 * other threads. */
enum { THREADS = 4, TURNS = 20000, SLOTS = 64 };

struct common {
    struct cairn_pool *pool;
    _Atomic(uint64_t *) table[SLOTS];
};

struct worker {
    pthread_t thread;
    struct common *common;
    uint64_t seed;
    unsigned wrong;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    for (unsigned turn = 0; turn < TURNS; turn++) {
        worker->seed = worker->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint64_t *object = cairn_pool_alloc(worker->common->pool);
        if (object == NULL) {
            worker->wrong++;
            continue;
        }
        object[0] = object[1] = object[2] = worker->seed;
        uint64_t *other =
            atomic_exchange(&worker->common->table[(worker->seed >> 33) % SLOTS], object);
        if (other == NULL)
            continue;
        worker->wrong += other[0] != other[1] || other[1] != other[2];
        cairn_pool_free(worker->common->pool, other);
    }
    return NULL;
}

TEST(a_shared_pool_serves_any_threads_at_once)
{
    for (unsigned kind = 0; kind < 4; kind++) {
        struct cairn_arena *arena = kind % 2 == 0 ? cairn_arena_create(0) : NULL;
        struct common common = {
            .pool = with((struct cairn_pool_options){
                .object_bytes = 24,
                .arena = arena,
                .shared = true,
                .checked = kind < 2 ? CAIRN_ARENA_CHECKED_OFF : CAIRN_ARENA_CHECKED_ON})};
        struct worker workers[THREADS] = {0};
        for (unsigned i = 0; i < THREADS; i++) {
            workers[i].common = &common;
            workers[i].seed = i + 1;
            CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
        }
        for (unsigned i = 0; i < 50; i++)
            CHECK(cairn_pool_statistics(common.pool).used_count <= SLOTS + THREADS);
        for (unsigned i = 0; i < THREADS; i++) {
            pthread_join(workers[i].thread, NULL);
            CHECK(workers[i].wrong == 0);
        }
        cairn_pool_check(common.pool);
        size_t left = 0;
        for (unsigned i = 0; i < SLOTS; i++)
            left += common.table[i] != NULL;
        CHECK(cairn_pool_statistics(common.pool).used_count == left);
        CHECK(cairn_pool_statistics(common.pool).high_water_count <
              SLOTS + THREADS + 4096 / 24 + 1);
        cairn_pool_reset(common.pool);
        cairn_pool_destroy(common.pool);
        cairn_arena_destroy(arena);
    }
    CHECK(fake_os.mapped_bytes == 0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
