/* Large blocks that come and go: each operation frees the oldest of --ring blocks of 512 KiB to 10
 * MiB and allocates another in its place, like image decoders, matrix temporaries and I/O buffers.
 * If an allocator returns such a block to the kernel, the next block costs two system calls and a
 * page fault for every page. If the allocator keeps the block, it needs a rule that says which kept
 * block serves the next request.
 *
 * Under --touch all, the time includes page faults and writing; under --touch none, it is only the
 * allocator's own work. The workload says nothing about small blocks, nor about how long memory is
 * kept after the last request. The defaults of --least and --most make differences large: the first
 * measurements of eight allocators with them differed by a factor of 300.
 */
#include "common/workload.h"

static struct parameter own[] = {
    {.name = "least",
     .help = "bytes of the smallest block",
     .value = 512 * KIB,
     .least = 1,
     .most = GIB},
    {.name = "most",
     .help = "bytes of the largest block",
     .value = 10 * MIB,
     .least = 1,
     .most = GIB},
    {.name = "ring",
     .help = "blocks that live at once in each thread",
     .value = 4,
     .least = 1,
     .most = 4096},
    {0},
};

static size_t least;
static size_t most;
static uint64_t ring;

static void prepare(void)
{
    least = parameter("least");
    most = parameter("most");
    ring = parameter("ring");
    if (most < least)
        workload_refuse("--most %zu is less than --least %zu", most, least);
    if (settings.operations == 0 && settings.seconds_ns == 0) {
        settings.operations = settings.touch == TOUCH_ALL ? 2000 : 200000;
        if (settings.operations < settings.threads)
            settings.operations = settings.threads;
    }
}

static void work(struct worker *worker)
{
    struct block *blocks = table_new(ring * sizeof *blocks);
    uint64_t next = 0;
    for (uint64_t n; (n = worker_next(worker)) > 0;)
        for (; n > 0; n--) {
            struct block *block = &blocks[next];
            next = next + 1 < ring ? next + 1 : 0;
            block_drop(worker, block);
            *block = block_new(worker, size_uniform(&worker->random, least, most));
        }
    for (uint64_t i = 0; i < ring; i++)
        block_drop(worker, &blocks[i]);
    table_free(blocks, ring * sizeof *blocks);
}

const struct workload workload = {
    .name = "large_churn",
    .title = "blocks of 512 KiB to 10 MiB, a few live at once",
    .operation = "one block freed and another allocated and touched in its place",
    .own = own,
    .batch = 4,
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
};
