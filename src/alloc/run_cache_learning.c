#include "alloc/run_cache_learning.h"

#include "alloc/learning_control.h"
#include "base/clock.h"
#include "policy/knob_learner.h"

enum {
    EPOCH_NS = 100000000,
    EPOCH_MISSES = 64,
    FIRST_STEP = 1, /* a thread may keep what run_cache_share() says */

    /* A visit to the page heap to take a run, and a second one to free it, have 500 instructions
     * each, without a system call. */
    MISS_NS = 250,

    /* To return a page and to fault it in again costs 255 + 1,300 ns. purge.h returns a page that
     * was idle for a quarter of a second. So a page that is kept for a second costs four times as
     * much. */
    PAGE_SECOND_NS = (255 + 1300) * 4,
    PAGE_BYTES = 4096,
};

bool run_cache_learns;

static struct knob_learner learner;

/* The misses, or the frees, of the present epoch. */
struct noted {
    _Atomic uint64_t count;
    _Atomic uint64_t kept; /* sum of the slices that the thread kept each time */
};
static struct noted misses;
static struct noted frees;
static uint64_t began_ns;       /* written while `ending` is set */
static _Atomic uint32_t ending; /* 1: a thread ends the epoch */

void run_cache_learning_begin(void)
{
    knob_learner_init(&learner, FIRST_STEP, 0, KNOB_STEPS - 1);
    began_ns = clock_now_ns();
    run_cache_learns = true;
}

/* Returns what a thread may keep at `step` if run_cache_share() says `share`. */
static uint32_t scaled(uint32_t share, unsigned step)
{
    return share << step >> FIRST_STEP;
}

uint32_t run_cache_learnt(uint32_t share)
{
    return scaled(share, knob_learner_step(&learner));
}

double run_cache_learning_cost_ns(uint64_t missed, double kept_slices, double seconds)
{
    double pages = kept_slices * (SLICE_BYTES / PAGE_BYTES);
    return (double)missed * MISS_NS + pages * seconds * PAGE_SECOND_NS;
}

/* Counts one more miss or free. Returns the new count. */
static uint64_t note(struct noted *noted, uint32_t kept)
{
    atomic_fetch_add_explicit(&noted->kept, kept, memory_order_relaxed);
    return 1 + atomic_fetch_add_explicit(&noted->count, 1, memory_order_relaxed);
}

/* Sets the count to 0. Returns the count before, and sets `*mean` to the mean number of slices that
 * the threads kept. */
static uint64_t take(struct noted *noted, double *mean)
{
    uint64_t count = atomic_exchange_explicit(&noted->count, 0, memory_order_relaxed);
    uint64_t kept = atomic_exchange_explicit(&noted->kept, 0, memory_order_relaxed);
    *mean = count != 0 ? (double)kept / (double)count : 0;
    return count;
}

/* Ends the epoch if it is long enough. */
static void look(uint32_t threads)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t took_ns = now_ns - began_ns;
    if (took_ns < EPOCH_NS)
        return;
    double at_misses, at_frees;
    uint64_t missed = take(&misses, &at_misses);
    uint64_t freed = take(&frees, &at_frees);
    began_ns = now_ns;
    double kept_slices = (freed != 0 ? (at_misses + at_frees) / 2 : at_misses) * threads;
    double cost_ns = run_cache_learning_cost_ns(missed, kept_slices, (double)took_ns / 1e9);
    unsigned before = knob_learner_step(&learner);
    /* The learner compares the cost per microsecond. If the program enters another phase, this cost
     * changes, and the learner notices the change. */
    if (knob_learner_evolve(&learner, cost_ns, took_ns / 1000))
        learning_changed("most slices that a thread may keep", scaled(RUN_CACHE_MOST, before),
                         run_cache_learnt(RUN_CACHE_MOST));
}

void run_cache_learning_missed(uint32_t kept, uint32_t threads)
{
    if (note(&misses, kept) % EPOCH_MISSES != 0 ||
        atomic_exchange_explicit(&ending, 1, memory_order_acquire) != 0)
        return;
    look(threads);
    atomic_store_explicit(&ending, 0, memory_order_release);
}

void run_cache_learning_freed(uint32_t kept)
{
    (void)note(&frees, kept);
}
