/* A thread that only frees. Workers allocate one generation of blocks after the other. They hand
 * over each generation, thousands of blocks at once, to one thread that never allocates. Programs
 * with deferred reclamation do this: epochs, read-copy-update, a collector's sweeper, a lazy delete
 * in the background. Each generation has other sizes than the generation before, so no request
 * reuses the blocks in the freeing thread's cache soon. The allocator must take these blocks back,
 * although the thread never allocates. The workload says nothing about single blocks that are
 * handed over immediately; producer_consumer does that. */
#include "common/workload.h"

#include <pthread.h>

enum {
    /* Number of bags of each worker. The worker fills one bag while the freeing thread empties the
     * other. */
    BAGS = 2,
    /* The smallest blocks of generation g have BAND_LEAST × 2^(g mod bands) bytes. The largest ones
     * have twice as many, less one. */
    BAND_LEAST = 64,
    BANDS_MOST = 15,
};

static struct parameter own[] = {
    {.name = "generation",
     .help = "bytes of one generation",
     .value = 8 * MIB,
     .least = 1,
     .most = 64 * GIB},
    {.name = "bands",
     .help = "number of doublings of size, from 64 bytes on, that the generations go through",
     .value = 7,
     .least = 1,
     .most = BANDS_MOST},
    {0},
};

static uint64_t generation_bytes;
static uint64_t bands;

/* The blocks of one generation. The generator gives the sizes again when the blocks are freed, and
 * the first serial number gives the keys, so only the addresses are stored. While `handed` is true,
 * the bag belongs to the freeing thread, otherwise to its worker. */
struct bag {
    /* Bytes of the smallest block. The largest block has 2 × least - 1 bytes. */
    size_t least;
    uint64_t capacity;
    uint64_t count;
    struct random sizes;
    uint32_t first_serial;
    bool handed;
    struct bag *next; /* next bag in the list of handed bags */
    void **addresses;
};

static struct {
    /* Protects the fields below, and the fields `handed` and `next` of every bag. */
    pthread_mutex_t lock;
    pthread_cond_t handed;
    pthread_cond_t emptied;
    struct bag *first;
    struct bag **last_link;
    unsigned open; /* workers that may still hand over bags */
} bags = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .handed = PTHREAD_COND_INITIALIZER,
          .emptied = PTHREAD_COND_INITIALIZER,
          .last_link = &bags.first};

static void prepare(void)
{
    generation_bytes = parameter("generation");
    bands = parameter("bands");
    bags.open = settings.threads - 1;
}

static void bag_hand(struct bag *bag)
{
    pthread_mutex_lock(&bags.lock);
    bag->handed = true;
    bag->next = NULL;
    *bags.last_link = bag;
    bags.last_link = &bag->next;
    pthread_cond_signal(&bags.handed);
    pthread_mutex_unlock(&bags.lock);
}

static void bag_await(const struct bag *bag)
{
    pthread_mutex_lock(&bags.lock);
    while (bag->handed)
        pthread_cond_wait(&bags.emptied, &bags.lock);
    pthread_mutex_unlock(&bags.lock);
}

/* Returns the oldest bag that was handed over. If there is no such bag, waits for one. Returns NULL
 * if no worker will hand over another bag. */
static struct bag *bag_take(void)
{
    pthread_mutex_lock(&bags.lock);
    while (bags.first == NULL && bags.open > 0)
        pthread_cond_wait(&bags.handed, &bags.lock);
    struct bag *bag = bags.first;
    if (bag != NULL) {
        bags.first = bag->next;
        if (bags.first == NULL)
            bags.last_link = &bags.first;
    }
    pthread_mutex_unlock(&bags.lock);
    return bag;
}

static void bag_return(struct bag *bag)
{
    pthread_mutex_lock(&bags.lock);
    bag->handed = false;
    pthread_cond_broadcast(&bags.emptied);
    pthread_mutex_unlock(&bags.lock);
}

/* Returns the number of blocks of a generation whose smallest blocks have `band_least` bytes. */
static uint64_t generation_count(size_t band_least)
{
    uint64_t count = generation_bytes / (band_least + band_least / 2);
    return count > 0 ? count : 1;
}

static void allocate(struct worker *worker)
{
    if (settings.seconds_ns == 0) {
        unsigned allocating = settings.threads - 1;
        worker->share =
            settings.operations / allocating + (worker->index < settings.operations % allocating);
    }
    struct bag mine[BAGS] = {0};
    /* The smallest blocks are the most numerous ones, so a table for them has room for any
     * generation. */
    size_t table_bytes = generation_count(BAND_LEAST) * sizeof(void *);
    for (unsigned i = 0; i < BAGS; i++)
        mine[i].addresses = table_new(table_bytes);
    struct bag *bag = NULL;
    uint64_t generation = 0;
    for (uint64_t n; (n = worker_next(worker)) > 0;) {
        for (; n > 0; n--) {
            if (bag == NULL || bag->count == bag->capacity) {
                if (bag != NULL)
                    bag_hand(bag);
                bag = &mine[generation % BAGS];
                bag_await(bag);
                bag->least = (size_t)BAND_LEAST << (generation++ % bands);
                bag->capacity = generation_count(bag->least);
                bag->count = 0;
                bag->sizes = worker->random;
                bag->first_serial = worker->serial;
            }
            size_t size = size_uniform(&worker->random, bag->least, 2 * bag->least - 1);
            bag->addresses[bag->count++] = block_new(worker, size).start;
        }
    }
    bag_hand(bag);
    pthread_mutex_lock(&bags.lock);
    bags.open--;
    pthread_cond_signal(&bags.handed);
    pthread_mutex_unlock(&bags.lock);
    for (unsigned i = 0; i < BAGS; i++) {
        bag_await(&mine[i]);
        table_free(mine[i].addresses, table_bytes);
    }
}

static void free_all(struct worker *worker)
{
    for (struct bag *bag; (bag = bag_take()) != NULL;) {
        for (uint64_t i = 0; i < bag->count; i++) {
            size_t size = size_uniform(&bag->sizes, bag->least, 2 * bag->least - 1);
            struct block block = {bag->addresses[i], (uint32_t)size,
                                  bag->first_serial + (uint32_t)i};
            block_drop(worker, &block);
        }
        worker_end(worker, 0); /* updates the live bytes */
        bag_return(bag);
    }
}

/* The last worker frees all blocks, and the other workers allocate them. Worker 0 is the main
 * thread. */
static void work(struct worker *worker)
{
    if (worker->index + 1 < settings.threads)
        allocate(worker);
    else
        free_all(worker);
}

static void conclude(void)
{
    uint64_t lazy;
    workload_figure("resident_after_bytes", (double)resident_bytes(&lazy));
}

const struct workload workload = {
    .name = "free_only",
    .title = "threads allocate, and one thread that never allocates frees all blocks",
    .operation =
        "one block allocated, filled, and then read and freed by the other thread; the time is "
        "that of the allocating threads, which wait when the freeing thread is behind",
    .own = own,
    .operations = 5000000,
    .batch = 500,
    .threads = 2,
    .threads_least = 2,
    .prepare = prepare,
    .work = work,
    .conclude = conclude,
};
