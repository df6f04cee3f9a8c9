/* Mixed churn: memory is filled up to --live bytes. Then every operation frees one live block and
 * allocates another, until --bytes were allocated in total. The experiment with which this project
 * began allocates 3 GB with about 760 MB alive. A long-lived process whose heap does not grow any
 * more, such as a cache or a compiler server, allocates in this way. The order in which blocks die
 * is unrelated to the order of their birth. So free lists are scattered, and freed blocks are not
 * in the processor's caches. Sizes are log-uniform: there are as many blocks of 16 to 32 bytes as
 * of 1 to 2 KiB. The workload says nothing about blocks above --most, about memory freed by another
 * thread, or about heaps that shrink. */
#include "common/workload.h"

#include <math.h>

static struct parameter own[] = {
    {.name = "bytes",
     .help = "bytes to allocate in total",
     .value = 3 * GIB,
     .least = 1,
     .most = UINT64_C(1) << 50},
    {.name = "live",
     .help = "bytes that are alive at once",
     .value = 760 * MIB,
     .least = 1,
     .most = 32 * GIB},
    {.name = "least", .help = "bytes of the smallest block", .value = 16, .least = 8, .most = MIB},
    {.name = "most", .help = "bytes of the largest block", .value = 2048, .least = 8, .most = MIB},
    {.name = "lifetimes",
     .help = "which block dies next: any one, or in 7 of 8 cases one of a sixteenth of all blocks",
     .choices = "alike|generational"},
    {0},
};

/* Quantiles of the size distribution: a random element is a random size. Drawing an element costs
 * less than computing a logarithm. */
static uint32_t sizes[1024];
static uint64_t place_count; /* number of blocks alive at once, all workers */
static bool generational;

static void prepare(void)
{
    uint64_t least = parameter("least");
    uint64_t most = parameter("most");
    if (most < least)
        workload_refuse("--most %llu is less than --least %llu", (unsigned long long)most,
                        (unsigned long long)least);
    uint64_t sum = 0;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        double part = ((double)i + 0.5) / COUNT_OF(sizes);
        sizes[i] = (uint32_t)((double)least * pow((double)(most + 1) / (double)least, part));
        sum += sizes[i];
    }
    double mean = (double)sum / COUNT_OF(sizes);
    place_count = (uint64_t)((double)parameter("live") / mean);
    if (place_count < settings.threads)
        place_count = settings.threads;
    generational = parameter("lifetimes") == 1;
    if (settings.operations == 0 && settings.seconds_ns == 0) {
        settings.operations = (uint64_t)((double)parameter("bytes") / mean);
        if (settings.operations < settings.threads)
            settings.operations = settings.threads;
    }
}

/* Draws the place whose block dies next. */
static uint64_t victim(struct random *random, uint64_t places)
{
    if (!generational)
        return random_below(random, places);
    uint64_t young = places / 16 + 1;
    return random_below(random, random_below(random, 8) > 0 ? young : places);
}

static void work(struct worker *worker)
{
    uint64_t places = place_count / settings.threads;
    if (places > worker->share)
        places = worker->share;
    struct block *blocks = table_new(places * sizeof *blocks);
    uint64_t filled = 0;
    uint64_t next = victim(&worker->random, places);
    uint64_t after_next = victim(&worker->random, places);
    for (uint64_t n; (n = worker_next(worker)) > 0;)
        for (; n > 0; n--) {
            struct block *block;
            if (filled < places) {
                block = &blocks[filled++];
            } else {
                block = &blocks[next];
                next = after_next;
                after_next = victim(&worker->random, places);
                /* Prefetching keeps two cache misses out of the measured time: the miss in the
                 * table, and the miss in the next block. A real program would just have used this
                 * block. */
                __builtin_prefetch(&blocks[after_next]);
                __builtin_prefetch(blocks[next].start);
                block_drop(worker, block);
            }
            *block = block_new(worker, sizes[random_below(&worker->random, COUNT_OF(sizes))]);
        }
    for (uint64_t i = 0; i < filled; i++)
        block_drop(worker, &blocks[i]);
    table_free(blocks, places * sizeof *blocks);
}

const struct workload workload = {
    .name = "mixed",
    .title = "a heap of 760 MiB whose blocks die and are replaced, one by one",
    .operation = "one block freed and another allocated in its place (initially only allocated)",
    .own = own,
    .batch = 100,
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
};
