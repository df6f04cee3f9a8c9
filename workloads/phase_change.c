/* A program of phases. It fills --live bytes with small blocks and frees them all. Then it does the
 * same with large blocks, then with medium blocks, and begins again with small ones. A compiler
 * that parses, optimises and writes allocates in this way, and so does a program that builds an
 * index. At most about --live bytes are alive at any time. The difference between
 * peak_resident_bytes and live_peak_bytes is memory that one phase left free and the next phase
 * could not use (blowup: Berger et al., "Hoard", ASPLOS 2000).
 *
 * The workload says nothing about blocks that outlive their phase and keep the memory around them
 * in use; burst_idle has such blocks. The addresses of the blocks are in a separate table, which
 * has up to 6 % of the live bytes while blocks are small. The sizes are not stored: the generator
 * gives them again when the blocks are freed.
 */
#include "common/peak.h"
#include "common/workload.h"

static struct parameter own[] = {
    {.name = "live",
     .help = "bytes of a phase, over all threads",
     .value = 192 * MIB,
     .least = 1,
     .most = 64 * GIB},
    {.name = "rounds",
     .help = "how often the three phases run",
     .value = 5,
     .least = 1,
     .most = 1000000},
    {0},
};

enum { PHASES = 3 };

static const struct {
    size_t least;
    size_t most;
} phases[PHASES] = {{16, 256}, {256 * KIB, 2 * MIB}, {1 * KIB, 32 * KIB}};

static uint64_t phase_blocks[PHASES]; /* number of blocks of one worker in each phase */

static void prepare(void)
{
    uint64_t live = parameter("live") / settings.threads;
    uint64_t sum = 0;
    for (unsigned i = 0; i < PHASES; i++) {
        phase_blocks[i] = live / ((phases[i].least + phases[i].most) / 2);
        if (phase_blocks[i] == 0)
            phase_blocks[i] = 1;
        sum += phase_blocks[i];
    }
    if (settings.operations == 0 && settings.seconds_ns == 0)
        settings.operations = 2 * sum * parameter("rounds") * settings.threads;
}

/* The state of a worker. Its blocks die in the order of birth. */
struct state {
    unsigned phase;
    bool freeing;
    uint64_t born;
    uint64_t dead;
    /* The state of the worker's generator before the first block of the phase was allocated. */
    struct random sizes;
    uint32_t serial; /* serial number of the first block of the phase */
    void **addresses;
};

static void begin_phase(struct worker *worker, struct state *state, unsigned phase)
{
    *state = (struct state){.phase = phase,
                            .sizes = worker->random,
                            .serial = worker->serial,
                            .addresses = state->addresses};
}

static void give_birth(struct worker *worker, struct state *state)
{
    size_t size =
        size_uniform(&worker->random, phases[state->phase].least, phases[state->phase].most);
    state->addresses[state->born++] = block_new(worker, size).start;
}

static void bury(struct worker *worker, struct state *state)
{
    size_t size =
        size_uniform(&state->sizes, phases[state->phase].least, phases[state->phase].most);
    struct block block = {state->addresses[state->dead], (uint32_t)size,
                          state->serial + (uint32_t)state->dead};
    state->dead++;
    block_drop(worker, &block);
}

static void one_operation(struct worker *worker, struct state *state)
{
    if (!state->freeing) {
        give_birth(worker, state);
        state->freeing = state->born == phase_blocks[state->phase];
    } else {
        bury(worker, state);
        if (state->dead == state->born)
            begin_phase(worker, state, (state->phase + 1) % PHASES);
    }
}

static void work(struct worker *worker)
{
    uint64_t most = 0;
    for (unsigned i = 0; i < PHASES; i++)
        most = phase_blocks[i] > most ? phase_blocks[i] : most;
    struct state state = {.addresses = table_new(most * sizeof(void *))};
    begin_phase(worker, &state, 0);
    for (uint64_t n; (n = worker_next(worker)) > 0;)
        for (; n > 0; n--)
            one_operation(worker, &state);
    while (state.dead < state.born)
        bury(worker, &state);
    table_free(state.addresses, most * sizeof(void *));
}

static void conclude(void)
{
    workload_figure("peak_resident_bytes", (double)peak_resident_bytes());
}

const struct workload workload = {
    .name = "phase_change",
    .title = "memory is filled with small blocks, then with large ones, then with medium ones",
    .operation =
        "one block allocated or one block freed; a phase is all allocations, then all frees",
    .own = own,
    .batch = 100,
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
    .conclude = conclude,
};
