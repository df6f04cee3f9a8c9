/* Sequential fill: blocks are allocated one after the other until they have --bytes bytes in total.
 * Then all blocks are freed in the order of birth. The experiment with which this project began
 * fills 3 GB. The workload shows the cost of a fresh page, and the bytes that a block costs beyond
 * its size. No memory is ever reused. The addresses of the blocks are in a separate table, because
 * a list through the blocks would touch them. */
#include "common/workload.h"

#include <stdlib.h>

static struct parameter own[] = {
    {.name = "bytes",
     .help = "bytes to allocate in total",
     .value = 3 * GIB,
     .least = 1,
     .most = UINT64_C(1) << 40},
    {.name = "least", .help = "bytes of the smallest block", .value = 16, .least = 1, .most = MIB},
    {.name = "most", .help = "bytes of the largest block", .value = 128, .least = 1, .most = MIB},
    {0},
};

static size_t least;
static size_t most;

static void prepare(void)
{
    least = parameter("least");
    most = parameter("most");
    if (most < least)
        workload_refuse("--most %zu is less than --least %zu", most, least);
    if (settings.operations == 0 && settings.seconds_ns == 0) {
        settings.operations = parameter("bytes") / ((least + most) / 2);
        if (settings.operations < settings.threads)
            settings.operations = settings.threads;
    }
}

/* Fills once, or repeatedly under --seconds. The generator gives the sizes again when the blocks
 * are freed, so only the addresses are stored. The addresses take 8 bytes per block, the same for
 * every contender. */
static void work(struct worker *worker)
{
    uint64_t places =
        settings.seconds_ns > 0 ? parameter("bytes") / most / settings.threads + 1 : worker->share;
    void **addresses = table_new(places * sizeof *addresses);
    do {
        struct random sizes = worker->random;
        uint32_t first = worker->serial;
        uint64_t made = 0;
        while (made < places && worker_goes_on(worker)) {
            uint64_t batch = places - made < workload.batch ? places - made : workload.batch;
            worker_begin(worker);
            for (uint64_t i = 0; i < batch; i++)
                addresses[made++] =
                    block_new(worker, size_uniform(&worker->random, least, most)).start;
            worker_end(worker, batch);
        }
        for (uint64_t i = 0; i < made; i++) {
            struct block block = {addresses[i], (uint32_t)size_uniform(&sizes, least, most),
                                  first + (uint32_t)i};
            block_drop(worker, &block);
        }
    } while (worker_goes_on(worker));
    table_free(addresses, places * sizeof *addresses);
}

const struct workload workload = {
    .name = "fill",
    .title = "small blocks are allocated one after the other, then all are freed",
    .operation = "one block allocated; freeing them all comes after the timed batches",
    .own = own,
    .batch = 1000,
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
};
