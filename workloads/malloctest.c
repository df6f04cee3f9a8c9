/* Bulk release: OBJECTS blocks of MIN to MAX bytes are allocated and then all released, REPEATS
 * times. If all blocks die together, an arena needs neither headers nor frees. The environment
 * variable MALLOCTEST_WITH selects the allocator, so that one comparison can include both an arena
 * and malloc:
 *
 *     malloc (or unset)       the process's malloc
 *     arena                   an arena that is reset each time and keeps its pages
 *     bump                    a pointer that moves through one mapping: the lower limit
 *     arena-huge, bump-huge   arena or bump with huge pages
 */
#include "common/workload.h"

#include <cairn/arena.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct parameter own[] = {
    {.name = "repeats",
     .help = "how often all blocks are allocated and released",
     .value = 10,
     .least = 1,
     .most = 1000000},
    {.name = "objects",
     .help = "blocks per repetition and thread",
     .value = 1000000,
     .least = 1,
     .most = UINT32_MAX},
    {.name = "min",
     .help = "bytes of the smallest block",
     .value = 10,
     .least = 1,
     .most = 64 * MIB},
    {.name = "max",
     .help = "bytes of the largest block",
     .value = 1000,
     .least = 1,
     .most = 64 * MIB},
    {0},
};

static bool with_arena;
static bool with_bump;
static bool huge;

static void prepare(void)
{
    const char *with = getenv("MALLOCTEST_WITH");
    if (with == NULL)
        with = "malloc";
    huge = strcmp(with, "arena-huge") == 0 || strcmp(with, "bump-huge") == 0;
    with_arena = strncmp(with, "arena", 5) == 0;
    with_bump = strncmp(with, "bump", 4) == 0;
    if (!huge && strcmp(with, "malloc") != 0 && strcmp(with, "arena") != 0 &&
        strcmp(with, "bump") != 0)
        workload_refuse("MALLOCTEST_WITH is malloc, arena, arena-huge, bump or bump-huge, not '%s'",
                        with);
    if (parameter("max") < parameter("min"))
        workload_refuse("--max is less than --min");
    if (settings.operations == 0 && settings.seconds_ns == 0)
        settings.operations = parameter("repeats") * parameter("objects") * settings.threads;
}

/* The allocator of one thread. The arena or mapping has enough memory even if all blocks have the
 * largest size. */
struct means {
    struct cairn_arena *arena; /* NULL if not used */
    char *mapping;             /* NULL if not used */
    size_t mapping_bytes;
    char *next;
};

static struct means means_new(void)
{
    size_t bytes = parameter("objects") * ((parameter("max") + 15) / 16 * 16);
    struct means means = {0};
    if (with_arena) {
        struct cairn_arena_options options = {
            .size_hint = bytes, .huge = huge ? CAIRN_ARENA_HUGE_ON : CAIRN_ARENA_HUGE_NEVER};
        means.arena = cairn_arena_create_with(&options);
        if (means.arena == NULL)
            workload_fail("cannot create an arena of %zu bytes", bytes);
    }
    if (with_bump) {
        means.mapping_bytes = bytes;
        means.mapping = means.next = table_new(bytes);
        if (huge)
            madvise(means.mapping, bytes, MADV_HUGEPAGE);
    }
    return means;
}

static void means_free(struct means *means)
{
    cairn_arena_destroy(means->arena);
    if (means->mapping != NULL)
        table_free(means->mapping, means->mapping_bytes);
}

static inline void *allocate(struct means *means, size_t size)
{
    if (means->arena != NULL)
        return cairn_arena_alloc(means->arena, size);
    if (means->mapping != NULL) {
        void *start = means->next;
        means->next += (size + 15) & ~(size_t)15;
        return start;
    }
    return malloc(size);
}

static void release(struct means *means, void **addresses, uint64_t count)
{
    if (means->arena != NULL)
        cairn_arena_reset(means->arena);
    else if (means->mapping != NULL)
        means->next = means->mapping;
    else
        for (uint64_t i = 0; i < count; i++)
            free(addresses[i]);
}

/* Each repetition is one batch. Blocks are read back only in the last repetition, because reading
 * takes the same time for every contender and would hide the time of allocation. Under --seconds
 * blocks are never read back. */
static void work(struct worker *worker)
{
    uint64_t objects = parameter("objects");
    size_t least = parameter("min");
    size_t most = parameter("max");
    enum touch touch = settings.touch;
    void **addresses = table_new(objects * sizeof *addresses);
    struct means means = means_new();
    worker_begin(worker);
    while (worker_goes_on(worker)) {
        struct random sizes = worker->random;
        uint32_t first = worker->serial;
        int64_t live = 0;
        uint64_t count =
            worker->share - worker->done < objects ? worker->share - worker->done : objects;
        for (uint64_t i = 0; i < count; i++) {
            struct block block = {NULL, (uint32_t)size_uniform(&worker->random, least, most),
                                  worker->serial++};
            addresses[i] = block.start =
                block_checked(allocate(&means, block.size), "an allocation", block.size);
            live += block.size;
            if (touch != TOUCH_NONE)
                contents_write(block.start, 0, touch_bytes(touch, block.size), block_key(&block));
        }
        worker_account(worker, live);
        if (worker->done + count == worker->share)
            for (uint64_t i = 0; i < count; i++) {
                struct block block = {addresses[i], (uint32_t)size_uniform(&sizes, least, most),
                                      first + (uint32_t)i};
                block_read(worker, &block);
            }
        release(&means, addresses, count);
        worker_account(worker, -live);
        worker_end(worker, count);
    }
    means_free(&means);
    table_free(addresses, objects * sizeof *addresses);
}

const struct workload workload = {
    .name = "malloctest",
    .title = "many blocks are allocated and then all released, repeatedly",
    .operation = "one block allocated and released",
    .own = own,
    .positional = "threads repeats objects min max",
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
};
