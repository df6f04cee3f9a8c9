/* Bursts, then idleness. In a burst, a server allocates --bytes of blocks, with sizes as in a large
 * fleet, and frees all but one block in twenty. After --bursts bursts the server is idle. The
 * survivors of a burst are freed after the next burst, so they are scattered over all memory. The
 * figures show how much memory is resident right after the last free, after one second, and after
 * --idle seconds. The program does nothing in this time. Resident memory that does not fall is the
 * most frequent complaint of users.
 *
 * Memory that was returned lazily (MADV_FREE) is still resident and is counted separately. No
 * thread ends before the last figure was read. The workload unmaps its own tables before the first
 * figure, except the table of the survivors. It says nothing about programs that continue to work
 * at a low rate. In those, many allocators would return more memory, because they return memory
 * only when the program calls them.
 */
#include "common/workload.h"

static struct parameter own[] = {
    {.name = "bytes",
     .help = "bytes of a burst, over all threads",
     .value = 256 * MIB,
     .least = 1,
     .most = 64 * GIB},
    {.name = "bursts", .help = "number of bursts", .value = 6, .least = 1, .most = 1000000},
    {.name = "survivors",
     .help = "blocks of every 1000 that outlive their burst",
     .value = 50,
     .least = 0,
     .most = 1000},
    {.name = "idle",
     .help = "seconds until the last figure",
     .value = 10,
     .least = 0,
     .most = 3600},
    {0},
};

enum { MEAN_BYTES = 370 }; /* mean of size_of_fleet() */

static uint64_t places; /* number of blocks of one worker in a burst */
static uint64_t survivors;
static atomic_uint_fast64_t live_bytes; /* bytes of the survivors that are alive at the end */
static atomic_uint_fast64_t free_ns;
static atomic_uint_fast64_t freed_blocks;

static void prepare(void)
{
    survivors = parameter("survivors");
    places = parameter("bytes") / MEAN_BYTES / settings.threads;
    if (places == 0)
        places = 1;
    if (settings.operations == 0 && settings.seconds_ns == 0)
        settings.operations = places * settings.threads * parameter("bursts");
}
static void observe(const char *resident, const char *lazy)
{
    uint64_t lazy_bytes = 0;
    workload_figure(resident, (double)resident_bytes(&lazy_bytes));
    workload_figure(lazy, (double)lazy_bytes);
}

/* Measures the memory of the idle program. One worker calls this while the others wait. */
static void idle(void)
{
    uint64_t seconds = parameter("idle");
    observe("resident_after_0_s_bytes", "lazy_after_0_s_bytes");
    if (seconds > 0) {
        workload_sleep(UINT64_C(1000000000));
        observe("resident_after_1_s_bytes", "lazy_after_1_s_bytes");
    }
    if (seconds > 1)
        workload_sleep((seconds - 1) * UINT64_C(1000000000));
    observe("resident_after_idle_bytes", "lazy_after_idle_bytes");
    workload_figure("live_after_bytes", (double)atomic_load(&live_bytes));
    workload_figure("free_ns",
                    (double)atomic_load(&free_ns) / (double)(atomic_load(&freed_blocks) + 1));
}

static uint64_t allocate_burst(struct worker *worker, struct block *burst)
{
    uint64_t made = 0;
    while (made < places && worker_goes_on(worker)) {
        uint64_t left = worker->share - worker->done;
        uint64_t batch = places - made < workload.batch ? places - made : workload.batch;
        batch = left < batch ? left : batch;
        worker_begin(worker);
        for (uint64_t i = 0; i < batch; i++)
            burst[made++] = block_new(worker, size_of_fleet(&worker->random));
        worker_end(worker, batch);
    }
    return made;
}

/* Frees the survivors of the previous burst. Then frees the blocks of this burst except its
 * survivors, which are moved to `kept`. Returns the number of survivors. */
static uint64_t free_burst(struct worker *worker, struct block *burst, uint64_t made,
                           struct block *kept, uint64_t kept_count)
{
    uint64_t began = clock_ns();
    uint64_t freed = kept_count + made;
    for (uint64_t i = 0; i < kept_count; i++)
        block_drop(worker, &kept[i]);
    kept_count = 0;
    for (uint64_t i = 0; i < made; i++) {
        if (random_below(&worker->random, 1000) < survivors)
            kept[kept_count++] = burst[i];
        else
            block_drop(worker, &burst[i]);
    }
    atomic_fetch_add(&free_ns, clock_ns() - began);
    atomic_fetch_add(&freed_blocks, freed - kept_count);
    return kept_count;
}

static void work(struct worker *worker)
{
    struct block *burst = table_new(places * sizeof *burst);
    struct block *kept = table_new(places * sizeof *kept);
    uint64_t kept_count = 0;
    do
        kept_count = free_burst(worker, burst, allocate_burst(worker, burst), kept, kept_count);
    while (worker_goes_on(worker));
    table_free(burst, places * sizeof *burst); /* its memory must not be part of the figures */
    for (uint64_t i = 0; i < kept_count; i++)
        atomic_fetch_add(&live_bytes, kept[i].size);
    workers_meet();
    if (worker->index == 0)
        idle();
    workers_meet();
    for (uint64_t i = 0; i < kept_count; i++)
        block_drop(worker, &kept[i]);
    table_free(kept, places * sizeof *kept);
}

const struct workload workload = {
    .name = "burst_idle",
    .title = "bursts of allocation, of which few blocks survive, then idleness",
    .operation = "one block allocated; the figure free_ns is the time to free one",
    .own = own,
    .batch = 100,
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
};
