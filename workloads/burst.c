/* Bursts: in each phase all threads wake, allocate a burst of blocks, wait for each other, free the
 * blocks, and go idle, like a server under a crowd that comes and leaves. All phases are equal, so
 * memory should not grow from burst to burst. While all threads are idle, little memory should be
 * resident.
 *
 * The workload tests more threads than processors, the memory that each thread costs, and the
 * return of memory to the kernel. The threads sleep while they are idle, and no reported time
 * includes this sleep. The workload says nothing about frees by other threads.
 */
#include "common/doublings.h"
#include "common/workload.h"

static struct parameter own[] = {
    {.name = "burst",
     .help = "blocks that each thread allocates",
     .value = 2000,
     .least = 1,
     .most = 16 * MIB},
    {.name = "idle", .help = "milliseconds between bursts", .value = 10, .least = 0, .most = 60000},
    {.name = "least", .help = "bytes of the smallest block", .value = 16, .least = 1, .most = MIB},
    {.name = "most", .help = "bytes of the largest block", .value = 4096, .least = 1, .most = MIB},
    {0},
};

static uint64_t burst;
static struct doublings sizes;
static atomic_uint_fast64_t phase_blocks; /* number of blocks in this phase, all threads */
/* Worker 0 writes `again` and the following variables while all other workers wait. */
static bool again;
static uint64_t phases;
static uint64_t first_full_bytes;
static uint64_t first_idle_bytes;
static uint64_t last_idle_bytes;

static void prepare(void)
{
    burst = parameter("burst");
    size_t least = parameter("least");
    size_t most = parameter("most");
    if (most < least)
        workload_refuse("--most %zu is less than --least %zu", most, least);
    sizes = doublings_of(least, most);
}

/* Measures the resident memory after all blocks of a phase were allocated and before the first
 * block is freed. Only worker 0 calls it. */
static void measure_full(struct worker *worker)
{
    uint64_t lazy;
    uint64_t began = clock_ns();
    first_full_bytes = resident_bytes(&lazy);
    worker->lap_at += clock_ns() - began; /* measuring is not part of the batch */
}

/* Ends a phase, in which all blocks have been freed. Only worker 0 calls it. */
static void end_phase(struct worker *worker)
{
    worker_end(worker, atomic_exchange(&phase_blocks, 0));
    phases++;
    again = worker_goes_on(worker);
    workload_sleep(parameter("idle") * 1000000);
    uint64_t lazy;
    if (phases == 1)
        first_idle_bytes = resident_bytes(&lazy);
    if (!again)
        last_idle_bytes = resident_bytes(&lazy);
    worker_begin(worker);
}

static void work(struct worker *worker)
{
    uint64_t left = worker->share;
    /* The batches of worker 0 count the operations of all threads, so the share of worker 0 is the
     * number of all operations. */
    if (worker->index == 0) {
        worker->share = settings.seconds_ns > 0 ? UINT64_MAX : settings.operations;
        worker_begin(worker);
    }
    struct block *blocks = table_new(burst * sizeof *blocks);
    do {
        /* The count is 0 if this worker has no operations left, while another worker still has
         * some. */
        uint64_t count = left < burst ? left : burst;
        left -= count;
        atomic_fetch_add(&phase_blocks, count);
        workers_meet();
        for (uint64_t i = 0; i < count; i++)
            blocks[i] = block_new(worker, size_of_doublings(&worker->random, &sizes));
        uint64_t began = worker->lap_at;
        /* Updates the live bytes before any thread frees a block. The batch itself goes on, because
         * `lap_at` is restored. */
        worker_end(worker, 0);
        worker->lap_at = began;
        workers_meet();
        if (phases == 0) {
            if (worker->index == 0)
                measure_full(worker);
            workers_meet();
        }
        for (uint64_t i = 0; i < count; i++)
            block_drop(worker, &blocks[i]);
        workers_meet();
        if (worker->index == 0)
            end_phase(worker);
        else
            worker_end(worker, 0);
        workers_meet();
    } while (again);
    table_free(blocks, burst * sizeof *blocks);
}

static void conclude(void)
{
    workload_figure("bursts", (double)phases);
    workload_figure("resident_in_first_burst_bytes", (double)first_full_bytes);
    workload_figure("resident_after_first_burst_bytes", (double)first_idle_bytes);
    workload_figure("resident_after_last_burst_bytes", (double)last_idle_bytes);
}

const struct workload workload = {
    .name = "burst",
    .title = "many threads allocate at once, free at once and go idle, again and again",
    .operation = "one block allocated and freed; its time is that of a whole burst divided by the "
                 "blocks of all threads",
    .own = own,
    .operations = 4000000,
    .batch = 1,
    .threads = 64,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
    .conclude = conclude,
};
