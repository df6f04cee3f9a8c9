/* Birth and death of threads. Short-lived threads are started one after the other. Each thread
 * allocates blocks, frees most of them in the order in which it allocated them, and ends. The
 * surviving blocks are freed much later by another thread. A server that starts a thread for each
 * request and keeps the results in a cache allocates in this way.
 *
 * The workload tests the work of an allocator when a thread begins and ends. It also tests whether
 * the allocator reuses the memory of dead threads, of which survivors take a small part. The time
 * includes the kernel's work of starting a thread, which is the same for all contenders. The
 * workload says nothing about threads that live long.
 */
#include "common/doublings.h"
#include "common/workload.h"

#include <inttypes.h>

static struct parameter own[] = {
    {.name = "blocks",
     .help = "blocks that each thread allocates",
     .value = 500,
     .least = 1,
     .most = MIB},
    {.name = "survivor",
     .help = "one block in N outlives its thread",
     .value = 20,
     .least = 1,
     .most = MIB},
    {.name = "keep",
     .help = "number of later threads that a survivor outlives",
     .value = 1000,
     .least = 1,
     .most = MIB},
    {.name = "heir",
     .help = "thread that frees survivors: the one that starts all others, or a later short thread",
     .choices = "starter|successor"},
    {.name = "least", .help = "bytes of the smallest block", .value = 16, .least = 1, .most = MIB},
    {.name = "most", .help = "bytes of the largest block", .value = 1024, .least = 1, .most = MIB},
    {0},
};

enum { SURVIVORS_MOST = 1 << 26 }; /* 1 GiB of struct block */

enum heir { HEIR_STARTER, HEIR_SUCCESSOR };

static uint64_t blocks;
static uint64_t survivor_one_in;
static uint64_t survivors; /* survivors of one thread */
static uint64_t keep;
static enum heir heir;
static struct doublings sizes;

static void prepare(void)
{
    blocks = parameter("blocks");
    survivor_one_in = parameter("survivor");
    survivors = (blocks - 1) / survivor_one_in + 1;
    keep = parameter("keep");
    if (keep * survivors > SURVIVORS_MOST)
        workload_fail("%" PRIu64 " survivors of each of %" PRIu64
                      " threads are more than %d in all",
                      survivors, keep, SURVIVORS_MOST);
    heir = (enum heir)parameter("heir");
    size_t least = parameter("least");
    size_t most = parameter("most");
    if (most < least)
        workload_refuse("--most %zu is less than --least %zu", most, least);
    sizes = doublings_of(least, most);
}

/* The data of one worker. The short thread uses this data while the thread lives. Before and after
 * that, the worker uses it. */
struct line {
    struct worker *worker;
    struct block *fresh; /* blocks of the living thread */
    /* The surviving blocks: `survivors` blocks for each of the last `keep` threads. */
    struct block *left;
    struct block *inherits; /* place for the survivors of the living thread */
};

static void drop_survivors(struct worker *worker, struct block *left)
{
    for (uint64_t i = 0; i < survivors; i++)
        block_drop(worker, &left[i]);
}

static void *live(void *argument)
{
    struct line *line = argument;
    struct worker *worker = line->worker;
    if (heir == HEIR_SUCCESSOR)
        drop_survivors(worker, line->inherits);
    for (uint64_t i = 0; i < blocks; i++)
        line->fresh[i] = block_new(worker, size_of_doublings(&worker->random, &sizes));
    struct block *left = line->inherits;
    for (uint64_t i = 0; i < blocks; i++) {
        if (i % survivor_one_in == 0)
            *left++ = line->fresh[i];
        else
            block_drop(worker, &line->fresh[i]);
    }
    return NULL;
}

static void work(struct worker *worker)
{
    struct line line = {
        .worker = worker,
        .fresh = table_new(blocks * sizeof(struct block)),
        .left = table_new(keep * survivors * sizeof(struct block)),
    };
    while (worker_next(worker) > 0) {
        line.inherits = line.left + worker->done % keep * survivors;
        if (heir == HEIR_STARTER)
            drop_survivors(worker, line.inherits);
        thread_join(thread_start(live, &line, 0));
    }
    for (uint64_t i = 0; i < keep; i++)
        drop_survivors(worker, line.left + i * survivors);
    table_free(line.fresh, blocks * sizeof(struct block));
    table_free(line.left, keep * survivors * sizeof(struct block));
}

const struct workload workload = {
    .name = "thread_birth",
    .title = "short threads allocate blocks, free most of them and die; others free the rest later",
    .operation = "one thread: its start, its blocks allocated, most of them freed, its end, and "
                 "the frees of an earlier thread's survivors",
    .own = own,
    .operations = 12000,
    .batch = 1,
    .threads = 2,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
};
