/* calloc of sizes from 16 bytes to 16 MiB, upwards and then downwards. There are four steps from
 * each size to its double. The blocks of a step are allocated one after the other and freed in the
 * order of birth, and a quarter of them is alive at once. The first blocks of a step come from
 * fresh memory or from memory that blocks of other sizes left. The later blocks come from memory of
 * freed blocks, which held other contents. Every block must be zero in the part that --touch
 * selects. Under --touch all, every byte is read before it is written.
 *
 * The workload tests whether an allocator clears memory that is already zero, from which size on it
 * takes new memory from the kernel instead of clearing, and how much time clearing and new memory
 * cost. It says nothing about blocks that die in another order, or about threads.
 */
#include "common/workload.h"

#include <math.h>

enum { STEPS_PER_DOUBLING = 4, STEPS_MOST = 100, BLOCKS_LEAST = 8, BLOCKS_MOST = 40000 };

static struct parameter own[] = {
    {.name = "least",
     .help = "bytes of the smallest block",
     .value = 16,
     .least = 8,
     .most = 128 * MIB},
    {.name = "most",
     .help = "bytes of the largest block",
     .value = 16 * MIB,
     .least = 8,
     .most = 128 * MIB},
    {.name = "bytes",
     .help = "bytes of all blocks of one size in each thread; there are 8 to 40000 blocks",
     .value = 16 * MIB,
     .least = 1,
     .most = GIB},
    {0},
};

/* The blocks of step i have low[i] to low[i + 1] - 1 bytes. The largest block of the last step has
 * --most bytes. */
static size_t low[STEPS_MOST + 1];
static unsigned step_count;

static uint64_t blocks_of(unsigned step)
{
    uint64_t blocks = parameter("bytes") / low[step];
    return blocks < BLOCKS_LEAST ? BLOCKS_LEAST : blocks > BLOCKS_MOST ? BLOCKS_MOST : blocks;
}

static void prepare(void)
{
    size_t least = parameter("least");
    size_t most = parameter("most");
    if (most < least)
        workload_refuse("--most %zu is less than --least %zu", most, least);
    uint64_t sum = 0;
    for (size_t size = least; size <= most; step_count++) {
        low[step_count] = size;
        sum += blocks_of(step_count);
        size = (size_t)((double)least * exp2((step_count + 1.0) / STEPS_PER_DOUBLING));
    }
    low[step_count] = most + 1;
    if (settings.operations == 0 && settings.seconds_ns == 0)
        settings.operations = 2 * sum * settings.threads;
}

/* The position of a worker in the sweep. */
struct sweep {
    unsigned stage; /* below step_count sizes rise, from there on they fall */
    unsigned step;
    uint64_t done; /* blocks allocated in this step */
    uint64_t held; /* number of blocks that are alive at once */
    uint64_t most; /* blocks to allocate in this step */
    struct block *ring;
};

static void drop_all(struct worker *worker, struct sweep *sweep)
{
    for (uint64_t i = 0; i < sweep->held; i++)
        block_drop(worker, &sweep->ring[i]);
}

static void begin_stage(struct sweep *sweep, unsigned stage)
{
    sweep->stage = stage % (2 * step_count);
    sweep->step = sweep->stage < step_count ? sweep->stage : 2 * step_count - 1 - sweep->stage;
    sweep->most = blocks_of(sweep->step);
    sweep->held = sweep->most / 4;
    sweep->done = 0;
}

static void one_operation(struct worker *worker, struct sweep *sweep)
{
    if (sweep->done == sweep->most) {
        drop_all(worker, sweep);
        begin_stage(sweep, sweep->stage + 1);
    }
    struct block *block = &sweep->ring[sweep->done++ % sweep->held];
    block_drop(worker, block);
    *block = block_new_zeroed(
        worker, size_uniform(&worker->random, low[sweep->step], low[sweep->step + 1] - 1));
}

static void work(struct worker *worker)
{
    struct sweep sweep = {.ring = table_new(BLOCKS_MOST / 4 * sizeof(struct block))};
    begin_stage(&sweep, 0);
    for (uint64_t n; (n = worker_next(worker)) > 0;)
        for (; n > 0; n--)
            one_operation(worker, &sweep);
    drop_all(worker, &sweep);
    table_free(sweep.ring, BLOCKS_MOST / 4 * sizeof(struct block));
}

const struct workload workload = {
    .name = "calloc_sweep",
    .title = "calloc of 16 bytes to 16 MiB, from fresh memory and from used memory",
    .operation = "one block allocated by calloc, checked to be zero and written, and the oldest of "
                 "its size freed",
    .own = own,
    .batch = 32,
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
};
