/* A sleeping owner: one thread allocates --bytes in blocks of one size and then waits until the
 * end. Another thread, the heir, frees all blocks and then allocates as many bytes in blocks of
 * another size. In some allocators, only the thread that allocated a block can make its memory
 * usable again. Then the freed blocks stay unusable while the owner sleeps, and both lots of blocks
 * are resident. Examples of such an owner are the idle worker of a thread pool, and a loader that
 * reads a file and passes the data on.
 *
 * The peak of resident memory is the result; time is less important. For comparison, the owner may
 * free some blocks itself before it sleeps, or end instead of sleeping. The workload says nothing
 * about owners that continue to allocate; producer_consumer has such owners. The owner waits on a
 * condition variable while the heir works, so the wall time contains no idle time.
 */
#include "common/workload.h"

#include <inttypes.h>
#include <pthread.h>

static struct parameter own[] = {
    {.name = "bytes",
     .help = "bytes that the owners allocate, and then the other threads",
     .value = 400 * MIB,
     .least = 1,
     .most = 1024 * GIB},
    {.name = "size",
     .help = "size of the owner's blocks",
     .value = 96,
     .least = 1,
     .most = 16 * MIB},
    {.name = "then",
     .help = "size of the other thread's blocks",
     .value = 160,
     .least = 1,
     .most = 16 * MIB},
    {.name = "own-frees", .help = "the owner itself frees one block in N; 0: none", .value = 0},
    {.name = "owner",
     .help = "what the owner does after it has allocated",
     .choices = "sleeps|ends"},
    {0},
};

enum { OPERATIONS_MOST_LOG2 = 40 };
enum owner { OWNER_SLEEPS, OWNER_ENDS };

static size_t sizes[2]; /* size of the owner's blocks, size of the heir's */
static uint64_t own_frees_one_in;
static enum owner owner_kind;
/* Worker 0 writes `again` and `resident_most` while all other workers wait. */
static bool again;
/* Highest resident bytes at three points of a round: with the owner's blocks, after the frees, and
 * with the heir's blocks. */
static uint64_t resident_most[3];

static void prepare(void)
{
    sizes[0] = parameter("size");
    sizes[1] = parameter("then");
    own_frees_one_in = parameter("own-frees");
    owner_kind = (enum owner)parameter("owner");
    if (settings.operations >> OPERATIONS_MOST_LOG2 != 0)
        workload_refuse("--operations %" PRIu64 " are more than 2^%d", settings.operations,
                        OPERATIONS_MOST_LOG2);
}

/* Blocks of one size with consecutive serial numbers, so that only their addresses must be
 * stored. */
struct lot {
    size_t size;
    uint64_t count;
    uint32_t first_serial;
    void **addresses;
};

/* Returns the number of blocks of sizes[number] that a worker allocates. Each block is two
 * operations: its allocation and its free. Both lots have the same number of bytes. */
static uint64_t lot_count(const struct worker *worker, unsigned number)
{
    uint64_t count = parameter("bytes") / settings.threads / sizes[number];
    if (settings.operations > 0) {
        uint64_t blocks = worker->share / 2;
        uint64_t first =
            (uint64_t)((double)blocks * (double)sizes[1] / (double)(sizes[0] + sizes[1]));
        count = number == 0 ? first : blocks - first;
    }
    return count > 0 ? count : 1;
}

static void lot_make(struct worker *worker, struct lot *lot)
{
    lot->first_serial = worker->serial;
    for (uint64_t i = 0; i < lot->count;) {
        worker_begin(worker);
        uint64_t began = i;
        for (; i < lot->count && i - began < workload.batch; i++)
            lot->addresses[i] = block_new(worker, lot->size).start;
        worker_end(worker, i - began);
    }
}

/* Frees every `step`th block, except those that are already freed. */
static void lot_drop(struct worker *worker, struct lot *lot, uint64_t step)
{
    for (uint64_t i = 0; i < lot->count;) {
        worker_begin(worker);
        uint64_t dropped = 0;
        for (; i < lot->count && dropped < workload.batch; i += step) {
            struct block block = {lot->addresses[i], (uint32_t)lot->size,
                                  lot->first_serial + (uint32_t)i};
            if (block.start == NULL)
                continue;
            block_drop(worker, &block);
            lot->addresses[i] = NULL;
            dropped++;
        }
        worker_end(worker, dropped);
    }
}

/* The data that a worker shares with the owner thread that it starts. `worker` and `lot` belong to
 * the owner thread until `filled` is set, and then to the worker. */
struct scene {
    struct worker *worker;
    struct lot lot;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool filled;
    bool dismissed;
};

static void *own_and_sleep(void *argument)
{
    struct scene *scene = argument;
    lot_make(scene->worker, &scene->lot);
    if (own_frees_one_in > 0)
        lot_drop(scene->worker, &scene->lot, own_frees_one_in);
    pthread_mutex_lock(&scene->lock);
    scene->filled = true;
    pthread_cond_broadcast(&scene->changed);
    while (owner_kind == OWNER_SLEEPS && !scene->dismissed)
        pthread_cond_wait(&scene->changed, &scene->lock);
    pthread_mutex_unlock(&scene->lock);
    return NULL;
}

static void await_owner(struct scene *scene)
{
    pthread_mutex_lock(&scene->lock);
    while (!scene->filled)
        pthread_cond_wait(&scene->changed, &scene->lock);
    pthread_mutex_unlock(&scene->lock);
}

static void dismiss_owner(struct scene *scene)
{
    pthread_mutex_lock(&scene->lock);
    scene->dismissed = true;
    pthread_cond_broadcast(&scene->changed);
    pthread_mutex_unlock(&scene->lock);
}

/* Measures memory. All workers call this at the same point, and wait while worker 0 measures. */
static void measure(struct worker *worker, unsigned place)
{
    workers_meet();
    if (worker->index == 0) {
        uint64_t lazy;
        uint64_t resident = resident_bytes(&lazy);
        if (resident > resident_most[place])
            resident_most[place] = resident;
        again = settings.seconds_ns > 0 && worker_goes_on(worker);
    }
    workers_meet();
}

static void play(struct worker *worker, void **addresses)
{
    struct scene scene = {
        .worker = worker,
        .lot = {.size = sizes[0], .count = lot_count(worker, 0), .addresses = addresses},
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
    };
    struct thread *owner = thread_start(own_and_sleep, &scene, 0);
    await_owner(&scene);
    if (owner_kind == OWNER_ENDS)
        thread_join(owner);
    measure(worker, 0);
    lot_drop(worker, &scene.lot, 1);
    measure(worker, 1);
    scene.lot =
        (struct lot){.size = sizes[1], .count = lot_count(worker, 1), .addresses = addresses};
    lot_make(worker, &scene.lot);
    measure(worker, 2);
    lot_drop(worker, &scene.lot, 1);
    if (owner_kind == OWNER_SLEEPS) {
        dismiss_owner(&scene);
        thread_join(owner);
    }
}

static void work(struct worker *worker)
{
    uint64_t most[] = {lot_count(worker, 0), lot_count(worker, 1)};
    size_t bytes = (most[0] > most[1] ? most[0] : most[1]) * sizeof(void *);
    void **addresses = table_new(bytes);
    do
        play(worker, addresses);
    while (again);
    table_free(addresses, bytes);
}

static void conclude(void)
{
    uint64_t peak = 0;
    for (unsigned i = 0; i < COUNT_OF(resident_most); i++)
        peak = resident_most[i] > peak ? resident_most[i] : peak;
    workload_figure("resident_with_owners_blocks_bytes", (double)resident_most[0]);
    workload_figure("resident_after_frees_bytes", (double)resident_most[1]);
    workload_figure("resident_with_other_blocks_bytes", (double)resident_most[2]);
    workload_figure("resident_peak_bytes", (double)peak);
}

const struct workload workload = {
    .name = "sleeping_owner",
    .title = "a thread allocates and sleeps; another thread frees all its blocks and allocates as "
             "many bytes in blocks of another size",
    .operation = "one block allocated or freed, by either thread",
    .own = own,
    .batch = 1000,
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
    .conclude = conclude,
};
