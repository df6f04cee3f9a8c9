/* Vectors and strings that grow by realloc, several at once. --kind selects how they grow:
 *
 *     step      vectors of 64 bytes grow by 256 KiB up to 32 MiB, like a log or a file that is read
 *               in pieces
 *     doubling  vectors grow by factors of 1.5 to 2, like those of C++ and Rust
 *     small     strings grow by 16 bytes, like a text that is appended to
 *     mixed     all three kinds, so that small blocks are placed behind large ones and prevent
 *               their growth
 *
 * After each step the new part is written. When the block is freed, its contents show whether
 * realloc kept the old part. The workload tests growth in place and moving pages instead of bytes
 * (mremap). It also tests how much memory is resident while realloc copies a block and both copies
 * exist: compare peak_resident_bytes with live_peak_bytes. It says nothing about blocks that
 * shrink.
 */
#include "common/peak.h"
#include "common/workload.h"

static struct parameter own[] = {
    {.name = "kind", .help = "how blocks grow", .choices = "mixed|step|doubling|small"},
    {.name = "largest",
     .help = "bytes at which a vector is freed",
     .value = 32 * MIB,
     .least = 4 * KIB,
     .most = GIB},
    {.name = "step", .help = "bytes of a step", .value = 256 * KIB, .least = 1, .most = GIB},
    {.name = "vectors",
     .help = "vectors of each kind that are alive at once in each thread",
     .value = 4,
     .least = 1,
     .most = 65536},
    {.name = "strings",
     .help = "strings that are alive at once in each thread",
     .value = 1000,
     .least = 1,
     .most = UINT64_C(1) << 24},
    {0},
};

enum kind { MIXED, STEP, DOUBLING, SMALL, KINDS };

enum { FIRST_BYTES = 64, STRING_STEP = 16, STRING_LEAST = 32, STRING_MOST = 2048 };

static const struct {
    uint64_t batch;      /* operations that are timed as one */
    uint64_t operations; /* default of --operations */
} plans[KINDS] = {{64, 3000000}, {1, 6000}, {1, 5000}, {64, 25000000}};

struct growing {
    struct block block;
    uint32_t end;        /* size at which the block is freed */
    uint32_t sixteenths; /* growth factor of kind doubling, in sixteenths */
};

/* All vectors and strings of one worker. */
struct population {
    struct growing *of[KINDS];
    uint64_t count[KINDS];
};

static enum kind kind;
static uint32_t largest;
static uint32_t step;

static void prepare(void)
{
    kind = (enum kind)parameter("kind");
    largest = (uint32_t)parameter("largest");
    step = (uint32_t)parameter("step");
    if (settings.operations == 0 && settings.seconds_ns == 0)
        settings.operations = plans[kind].operations;
    if (settings.operations < settings.threads && settings.seconds_ns == 0)
        settings.operations = settings.threads;
}

/* Draws the kind of the next operation. Under --kind mixed, of 4096 operations one is of kind
 * doubling, four are of kind step, and all others are of kind small. Each kind then takes about the
 * same time in total. */
static enum kind kind_of_next(struct random *random)
{
    if (kind != MIXED)
        return kind;
    uint64_t of_4096 = random_below(random, 4096);
    return of_4096 == 0 ? DOUBLING : of_4096 <= 4 ? STEP : SMALL;
}

static uint64_t next_size(const struct growing *growing, enum kind its)
{
    uint64_t size = growing->block.size;
    return its == STEP       ? size + step
           : its == DOUBLING ? size * growing->sixteenths / 16
                             : size + STRING_STEP;
}

static void begin(struct worker *worker, struct growing *growing, enum kind its)
{
    struct random *random = &worker->random;
    growing->sixteenths = (uint32_t)size_uniform(random, 24, 32);
    growing->end =
        its == SMALL ? (uint32_t)size_log_uniform(random, STRING_LEAST, STRING_MOST) : largest;
    growing->block = block_new(worker, its == SMALL ? STRING_STEP : FIRST_BYTES);
}

static void one_operation(struct worker *worker, const struct population *all)
{
    enum kind its = kind_of_next(&worker->random);
    struct growing *growing = &all->of[its][random_below(&worker->random, all->count[its])];
    uint64_t size = next_size(growing, its);
    if (growing->block.start != NULL && size <= growing->end) {
        block_resize(worker, &growing->block, size);
    } else {
        block_drop(worker, &growing->block);
        begin(worker, growing, its);
    }
}

static void work(struct worker *worker)
{
    struct population all = {0};
    for (enum kind its = STEP; its < KINDS; its++) {
        all.count[its] = parameter(its == SMALL ? "strings" : "vectors");
        all.of[its] = table_new(all.count[its] * sizeof(struct growing));
    }
    while (worker_goes_on(worker)) {
        uint64_t left = worker->share - worker->done;
        uint64_t batch = left < plans[kind].batch ? left : plans[kind].batch;
        worker_begin(worker);
        for (uint64_t i = 0; i < batch; i++)
            one_operation(worker, &all);
        worker_end(worker, batch);
    }
    for (enum kind its = STEP; its < KINDS; its++) {
        for (uint64_t i = 0; i < all.count[its]; i++)
            block_drop(worker, &all.of[its][i].block);
        table_free(all.of[its], all.count[its] * sizeof(struct growing));
    }
}

static void conclude(void)
{
    workload_figure("peak_resident_bytes", (double)peak_resident_bytes());
}

const struct workload workload = {
    .name = "realloc_growth",
    .title = "vectors and strings that grow by realloc, several at once",
    .operation = "one realloc and the writing of the new part; at the end of a block, its free and "
                 "a malloc of the next one",
    .own = own,
    .batch = 1,
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
    .conclude = conclude,
};
