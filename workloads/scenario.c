/* The four scenarios with which this project began, from the study of an experimental allocator: a
 * JSON parser's buffers of about 64 KiB, the intermediate code (MIR) of a compiler in pieces of 256
 * KiB, a virtual machine's regions of 2 MiB, and all of them mixed. Sizes vary by --spread percent
 * around the nominal size. A few blocks are alive at once and die in the order of birth.
 *
 * The workload tests whether an allocator keeps large blocks that are soon requested again, or
 * returns them to the kernel. The first measurement used --touch header, because the memory traffic
 * of --touch all hides the difference. Batches are small, because the 95th and 99th percentile of
 * the time of an operation are reported. The clock adds about 30 ns to each batch. The workload
 * says nothing about small blocks, nor about how much memory is kept and how long.
 */
#include "common/workload.h"

enum { KINDS = 3, MIXED = KINDS, RING_MOST = 16, PAGE = 4096 };

static struct parameter own[] = {
    {.name = "which", .help = "the scenario", .choices = "json|mir|vm|mixed"},
    {.name = "spread",
     .help = "percent by which sizes differ from the nominal size",
     .value = 25,
     .most = 90},
    {.name = "pages",
     .help = "also write one byte every 4 KiB of each buffer",
     .choices = "no|yes"},
    {0},
};

static const struct {
    size_t size;
    unsigned ring;     /* blocks alive at once */
    unsigned batch;    /* operations that are timed as one */
    uint64_t touching; /* default operations under --touch all */
    uint64_t passing;  /* default operations otherwise */
} scenarios[] = {
    {64 * KIB, 16, 16, 200000, 4000000},
    {256 * KIB, 8, 4, 40000, 2000000},
    {2 * MIB, 4, 1, 6000, 1000000},
    {0, 0, 1, 15000, 1500000}, /* the three kinds above, equally often */
};

static uint64_t which;
static uint64_t spread;
static uint64_t each_page;

static void prepare(void)
{
    which = parameter("which");
    each_page = parameter("pages");
    spread = parameter("spread");
    if (settings.operations == 0 && settings.seconds_ns == 0) {
        settings.operations =
            settings.touch == TOUCH_ALL ? scenarios[which].touching : scenarios[which].passing;
        if (settings.operations < settings.threads)
            settings.operations = settings.threads;
    }
}

struct ring {
    struct block blocks[RING_MOST];
    unsigned next; /* index of the oldest block */
};

/* Writes one byte every 4 KiB, after the part that --touch selects. */
static void write_pages(const struct block *block)
{
    volatile char *bytes = block->start;
    for (size_t at = PAGE; at < block->size; at += PAGE)
        if (at >= touch_bytes(settings.touch, block->size))
            bytes[at] = 1;
}

static void one_operation(struct worker *worker, struct ring *rings)
{
    uint64_t kind = which == MIXED ? random_below(&worker->random, KINDS) : which;
    size_t away = scenarios[kind].size * spread / 100;
    struct ring *ring = &rings[kind];
    struct block *block = &ring->blocks[ring->next];
    ring->next = ring->next + 1 < scenarios[kind].ring ? ring->next + 1 : 0;
    block_drop(worker, block);
    *block = block_new(worker, size_uniform(&worker->random, scenarios[kind].size - away,
                                            scenarios[kind].size + away));
    if (each_page)
        write_pages(block);
}

static void work(struct worker *worker)
{
    struct ring rings[KINDS] = {0};
    while (worker_goes_on(worker)) {
        uint64_t left = worker->share - worker->done;
        uint64_t batch = left < scenarios[which].batch ? left : scenarios[which].batch;
        worker_begin(worker);
        for (uint64_t i = 0; i < batch; i++)
            one_operation(worker, rings);
        worker_end(worker, batch);
    }
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (unsigned i = 0; i < RING_MOST; i++)
            block_drop(worker, &rings[kind].blocks[i]);
}

const struct workload workload = {
    .name = "scenario",
    .title = "large buffers that come and go: 64 KiB, 256 KiB, 2 MiB, or all of them",
    .operation = "one buffer freed and another allocated and used in its place",
    .own = own,
    .batch = 1,
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
};
