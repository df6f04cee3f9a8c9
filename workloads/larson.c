/* Sessions that move between threads. Every worker has an array of blocks, like a session of a
 * server. Random blocks of the array are freed and replaced. After a round the thread ends, and a
 * new thread continues with the same array. The new thread thus frees blocks of a dead thread. The
 * workload follows Larson and Krishnan, "Memory allocation for long-running server applications"
 * (ISMM 1998), which measured how the memory of a server grows with time and how its speed falls.
 *
 * The workload tests frees of blocks whose thread has ended, and the reuse of the heaps of such
 * threads. Sizes are uniform, unlike those of real programs. The start and end of a thread count in
 * the busy time, but not in the time per operation. The workload thread_birth measures the start
 * and the end.
 */
#include "common/workload.h"

static struct parameter own[] = {
    {.name = "slots",
     .help = "blocks that a worker holds",
     .value = 2000,
     .least = 1,
     .most = 16 * MIB},
    {.name = "round",
     .help = "replacements before a new thread takes over",
     .value = 8000,
     .least = 1},
    {.name = "least", .help = "bytes of the smallest block", .value = 8, .least = 1, .most = MIB},
    {.name = "most", .help = "bytes of the largest block", .value = 500, .least = 1, .most = MIB},
    {0},
};

static uint64_t slots;
static uint64_t round_length;
static size_t least;
static size_t most;

static void prepare(void)
{
    slots = parameter("slots");
    round_length = parameter("round");
    least = parameter("least");
    most = parameter("most");
    if (most < least)
        workload_refuse("--most %zu is less than --least %zu", most, least);
}

/* The state that a thread leaves to its successor. */
struct session {
    struct worker *worker;
    struct block *blocks; /* `slots` blocks, initially all empty */
};

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Runs one thread: a round of replacements. */
static void *serve(void *argument)
{
    struct session *session = argument;
    struct worker *worker = session->worker;
    for (uint64_t left = round_length; left > 0 && worker_goes_on(worker);) {
        uint64_t batch = smaller(smaller(left, workload.batch), worker->share - worker->done);
        worker_begin(worker);
        for (uint64_t i = 0; i < batch; i++) {
            struct block *block = &session->blocks[random_below(&worker->random, slots)];
            block_drop(worker, block);
            *block = block_new(worker, size_uniform(&worker->random, least, most));
        }
        worker_end(worker, batch);
        left -= batch;
    }
    return NULL;
}

static void work(struct worker *worker)
{
    struct session session = {worker, table_new(slots * sizeof *session.blocks)};
    while (worker_goes_on(worker))
        thread_join(thread_start(serve, &session, 0));
    for (uint64_t i = 0; i < slots; i++)
        block_drop(worker, &session.blocks[i]);
    table_free(session.blocks, slots * sizeof *session.blocks);
}

const struct workload workload = {
    .name = "larson",
    .title = "random blocks are replaced while one thread follows another",
    .operation = "one block freed and another allocated in its place (initially only allocated)",
    .own = own,
    .operations = 12000000,
    .batch = 500,
    .threads = 2,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
};
