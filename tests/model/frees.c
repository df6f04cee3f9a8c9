/* frees.c - runs threads that free, refill, end, adopt and fork around one slab, in every order.
 *
 * A row of a test below consists of the first state of a slab, and of a script for each of up to
 * four threads. Thread A owns the slab. A script is a list of these letters:
 *
 *     f0 … f7   frees the block of that number
 *     g0 … g7   frees the block of that number of the second slab, if the row has two slabs
 *     m         allocates a block of the slab's size class, and keeps it
 *     x         ends the thread
 *     n         goes on as a new thread, with the heap of an ended thread if there is one
 *     c         collects: returns the blocks that the thread keeps ready to their slabs
 *     e         acquires a heap that has to be empty, and releases it
 *     s         sweeps all heaps
 *     l         looks at the thread's parked slabs (heap_trim.h), and trims none of them
 *     F         forks: goes on as the child, in which no other thread exists
 *     U         forks without fork handlers, so that a thread that the child lacks may hold a lock
 *     H         forks without fork handlers in a signal handler of thread A: the child goes on with
 *               the heap of A, in which a call of A is interrupted
 *
 * After every execution each block is in exactly one place, each slab is on the list that belongs
 * to its state, and no slab is stranded: see check().
 */
#include "memory.h"
#include "stubs.h"

#include "../unit/test.h"
#include "alloc/heap_trim.h"
#include "alloc/purge.h"

#include <stdlib.h>
#include <time.h>

/* The state of the slab when the threads begin. The row's `live` is the number of its live blocks.
 * slab.h defines the fields of a slab, and remote.h defines its states. */
enum start {
    CURRENT, /* the owner allocates from the slab */
    /* The owner's frees made the slab PARKED. Another slab is the current one, and is used up. */
    PARKED,
    /* Another thread's frees made the slab PARKED. The owner has not seen these frees, so `until`
     * and `rest` still have the values that they had while the slab was FULL. */
    PARKED_BY_POST,
    /* Every block is live, or was freed (posted) by another thread. Too few blocks were posted to
     * make the slab PARKED. */
    FULL,
    ENDED,          /* the slab was PARKED, then its owner ended */
    ENDED_FULL,     /* the slab was FULL, then its owner ended */
    ENDED_TWO_FULL, /* two slabs FULL, one PARKED, owner ended */
    TWO_PARKED,     /* two slabs, each with `live` live blocks */

    /* States of slabs with another number of blocks. remote.h compares the number of posted blocks
     * with an eighth of this number, but with at least one block. */
    CURRENT_16, /* 16 blocks, so an eighth is two blocks */
    FULL_16,
    CURRENT_8, /* 8 blocks, of which a batch (batch.h) has 4 */
    FULL_8,
    PARKED_8,
    CURRENT_4, /* 4 blocks; one block counts as an eighth */
    FULL_4,
};
static const char *const start_names[] = {
    "CURRENT",      "PARKED",          "PARKED by a post", "FULL",          "ended",
    "ended, FULL",  "ended, two FULL", "two PARKED",       "CURRENT of 16", "FULL of 16",
    "CURRENT of 8", "FULL of 8",       "PARKED of 8",      "CURRENT of 4",  "FULL of 4",
};

enum {
    SECOND = 8, /* index of the second slab's first block in `block` */
    BLOCKS = 16,
    /* The most executions of a row. With --long, the number without stale loads has no limit. */
    EXECUTIONS = 400,                  /* without stale loads */
    STALE_EXECUTIONS = 200,            /* with stale loads */
    STALE_EXECUTIONS_LONG = 20 * 1000, /* with stale loads, --long */
};

struct row {
    enum start start;
    unsigned live;
    const char *scripts[MODEL_CHECKER_THREADS_MAX];
};

static const struct row *row;
static unsigned row_threads;
static void *block[BLOCKS];
static struct stubs saved;
static bool forked;
static unsigned forker;

/* --- options ---------------------------------------------------------------------------------- */

static bool is_long;
static unsigned stale_most = 1; /* most stale loads in an execution */
/* A bug was planted in the code under test; the first row that finds the bug ends the test. */
static bool must_fail;
static bool found;
static const char *only;   /* name of the only row to run; NULL: all */
static const char *replay; /* the schedule to replay; NULL: none */
static uint64_t all_executions;

/* --- a row ------------------------------------------------------------------------------------ */

static size_t row_size(void)
{
    return row->start >= CURRENT_4    ? 4096
           : row->start >= CURRENT_8  ? 2048
           : row->start >= CURRENT_16 ? 1024
                                      : 14336; /* a slab of seven slices */
}

static unsigned row_capacity(void)
{
    return row->start >= CURRENT_4    ? 4
           : row->start >= CURRENT_8  ? 8
           : row->start >= CURRENT_16 ? 16
                                      : 8;
}

static void setup(void)
{
    stubs_begin(row_threads);
    stubs_as(0);
    unsigned capacity = row_capacity();
    for (unsigned i = 0; i < capacity; i++)
        block[i] = stubs_malloc(row_size());
    if (row->start == TWO_PARKED || row->start == ENDED_TWO_FULL)
        for (unsigned i = 0; i < capacity; i++)
            block[SECOND + i] = stubs_malloc(row_size());
    bool is_current = row->start == CURRENT || row->start == CURRENT_16 ||
                      row->start == CURRENT_8 || row->start == CURRENT_4;
    if (!is_current) /* fills another slab, which is then the current one */
        for (unsigned i = 0; i < capacity; i++)
            stubs_malloc(row_size());
    if (row->start == PARKED_BY_POST)
        stubs_as_nobody();
    for (unsigned i = row->live; i < capacity; i++) {
        stubs_free(block[i]);
        if (row->start == TWO_PARKED)
            stubs_free(block[SECOND + i]);
    }
    if (row->start == ENDED || row->start == ENDED_FULL || row->start == ENDED_TWO_FULL) {
        heap_release(heap_acquire(false)); /* makes an idle heap, to which slabs can move */
        stubs_as(0);
        stubs_end_thread();
    }
    saved = stubs;
}

static void begin(void)
{
    stubs = saved;
    forked = false;
}

static void fork_thread(unsigned self)
{
    heap_lock_all();
    model_checker_stop_others();
    heap_unlock_all();
    forked = true;
    forker = self;
}

/* In the child, the locks stay as they were at the fork, as they do after _Fork(). */
static void fork_without_handlers(unsigned self)
{
    model_checker_stop_others();
    stubs.new_child = true;
    forked = true;
    forker = self;
}

/* The handler's thread is A, so it has the heap of A as the interrupted call left it. */
static void fork_in_handler(unsigned self)
{
    fork_without_handlers(self);
    stubs.in_handler = true;
    thread_heap = stubs.now[0];
}

static void release_empty(struct heap *heap)
{
    unsigned class = size_class(row_size());
    bool has = heap->current[class] != NULL || heap->partial[class] != 0 || heap->full != 0;
    if (has)
        model_checker_fail("a heap that was to be empty has a slab");
    heap_release(heap);
}

/* Looks for the first time in an epoch. The heap does not wait after earlier looks. */
static void look(struct heap *heap)
{
    heap->trim.epoch = purge_epoch() - 1;
    heap->trim.wait = 0;
    heap_trim(heap, false);
}

static void body(unsigned self)
{
    for (const char *script = row->scripts[self]; *script != '\0'; script++) {
        switch (*script) {
        case 'f':
            stubs_free(block[*++script - '0']);
            break;
        case 'g':
            stubs_free(block[SECOND + *++script - '0']);
            break;
        case 'm':
            stubs_malloc(row_size());
            break;
        case 'n':
            stubs_begin_thread();
            break;
        case 'x':
            stubs_end_thread();
            break;
        case 'c':
            heap_collect(thread_heap);
            break;
        case 'e':
            release_empty(heap_acquire(true));
            break;
        case 's':
            heap_sweep();
            break;
        case 'l':
            look(thread_heap);
            break;
        case 'F':
            fork_thread(self);
            break;
        case 'U':
            fork_without_handlers(self);
            break;
        case 'H':
            fork_in_handler(self);
            break;
        default:
            model_checker_fail("unknown command in the script %s", row->scripts[self]);
        }
    }
}

/* --- checks after an execution ---------------------------------------------------------------- */

#define SHOULD(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            model_checker_fail(__VA_ARGS__);                                                       \
    } while (0)

static bool is_on(uint32_t first, const struct slab *slab)
{
    unsigned on = 0;
    for (uint32_t index = first, length = 0; index != 0; index = slab_at(index)->next) {
        SHOULD(++length <= STUBS_RUNS, "a list is circular");
        on += slab_at(index) == slab;
    }
    SHOULD(on <= 1, "a slab is twice on a list");
    return on == 1;
}

/* Returns the number of blocks on a list. Each must belong to the slab, and must not have been met
 * in another place. */
static unsigned count(struct slab *slab, const struct block *first, bool *met)
{
    unsigned blocks = 0;
    for (; first != NULL; first = first->next, blocks++) {
        SHOULD(slab_has_block(slab, first), "a block is on a list of another slab");
        size_t number =
            (size_t)((const char *)first - slab_start(slab)) / size_class_bytes(slab->class);
        SHOULD(!met[number], "a block is in two places");
        met[number] = true;
    }
    return blocks;
}

/* Returns whether the script of the owner frees or collects blocks. If so, an empty slab may stay
 * unclaimed, because the owner and another thread may each rely on the other to claim it
 * (remote.h). */
static bool owner_frees(void)
{
    return strpbrk(row->scripts[0], "fc") != NULL;
}

/* Returns the number of blocks of the slab that wait in a batch of a heap other than `but`. */
static unsigned count_batched(struct slab *slab, const struct heap *but, bool *met)
{
    unsigned blocks = 0;
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next) {
        for (size_t i = 0; i < BATCHES && heap != but; i++) {
            const struct batch *batch = &heap->batches[i];
            if (atomic_load(&batch->slab) != slab)
                continue;
            uint64_t word = atomic_load(&batch->word);
            uint32_t says = batch_count(word);
            char *first = slab_start(slab) + batch_first(word);
            unsigned are = count(slab, (struct block *)first, met);
            SHOULD(are == says, "a batch has %u blocks, but counts %u", are, says);
            SHOULD((heap->batched >> i & 1) != 0, "a batch has blocks, but no bit in `batched`");
            blocks += are;
        }
    }
    return blocks;
}

static void check_slab(struct slab *slab)
{
    slab_check(slab);
    struct heap *owner = atomic_load(&slab->owner);
    uint64_t word = atomic_load(&slab->posted);
    enum remote_state state = remote_state_of(word);
    unsigned class = slab->class;
    unsigned places = 0;
    unsigned on_list = 0;
    bool met[BLOCKS] = {false};
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next) {
        if (heap->current[class] == slab) {
            SHOULD(owner == heap && state == REMOTE_CURRENT,
                   "a heap's current slab is not CURRENT");
            on_list = count(slab, heap->list[class], met);
            places++;
        }
        if (is_on(heap->partial[class], slab)) {
            SHOULD(owner == heap && state == REMOTE_PARKED, "a slab on `partial` is not PARKED");
            places++;
        }
        if (is_on(heap->full, slab)) {
            SHOULD(owner == heap && state == REMOTE_FULL, "a slab on `full` is not FULL");
            places++;
        }
    }
    SHOULD(places > 0, "a slab is on no list");
    SHOULD(places == 1, "a slab is on two lists");

    unsigned out = 0;
    for (unsigned i = 0; i < stubs.block_count; i++)
        if (stubs.blocks[i].out && stubs_slab(stubs.blocks[i].p) == slab)
            out++;
    uint32_t place = (uint32_t)word & ((1u << REMOTE_FIRST_BITS) - 1);
    char *posted_first = place == 0 ? NULL : slab_start(slab) + (size_t)(place - 1) * 16;
    unsigned posted = count(slab, (struct block *)posted_first, met);
    unsigned free = count(slab, slab->free, met);
    unsigned batched = count_batched(slab, NULL, met);
    unsigned live = slab_live(slab);
    SHOULD(posted == remote_count_of(word), "%u blocks are posted, but the slab counts %u", posted,
           remote_count_of(word));
    SHOULD(live == out + on_list + posted + batched,
           "%u blocks count as live, but %u are out, %u on the heap's list, %u posted, and %u in "
           "batches",
           live, out, on_list, posted, batched);
    SHOULD(slab->carved == live + free, "of %u carved blocks %u are live and %u are free",
           slab->carved, live, free);

    unsigned eighth = slab->capacity < 8 ? 1 : slab->capacity / 8;
    SHOULD(state != REMOTE_FULL || posted < eighth, "a slab with %u posted blocks is still FULL",
           posted);
    SHOULD(state != REMOTE_FULL || free < eighth, "a slab with %u free blocks is still FULL", free);
    SHOULD(state == REMOTE_CURRENT || !atomic_load(&owner->idle) || live > posted,
           "an ended thread left a slab without a live block, which was not claimed");
    SHOULD(state != REMOTE_PARKED || live != posted || live == 0 || owner_frees(),
           "all live blocks are posted, and the slab was not claimed");
    SHOULD(state != REMOTE_PARKED || live > 0 || (owner->empty >> class & 1) != 0,
           "an empty slab is parked, and its heap has not set the bit in `empty`");
}

static void check_places(void)
{
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next)
        heap_check(heap);
    for (unsigned i = 0; i < stubs.run_count; i++)
        if (!stubs.runs[i].returned && slab_at(stubs.runs[i].first)->kind == RUN_SLAB)
            check_slab(slab_at(stubs.runs[i].first));
}

/* If two threads left the claim of a slab to each other, a sweep must claim that slab. */
static void check_sweep_claims_the_rest(void)
{
    heap_sweep();
    for (unsigned i = 0; i < stubs.run_count; i++) {
        struct slab *slab = slab_at(stubs.runs[i].first);
        if (stubs.runs[i].returned || slab->kind != RUN_SLAB ||
            remote_state(slab) == REMOTE_CURRENT)
            continue;
        unsigned live = slab_live(slab);
        SHOULD(live == 0 || live > remote_count_of(atomic_load(&slab->posted)),
               "a sweep did not claim a slab of which all live blocks are posted");
    }
}

static void free_all(void)
{
    for (unsigned i = 0; i < stubs.block_count; i++)
        if (stubs.blocks[i].out)
            stubs_free(stubs.blocks[i].p);
}

static void end_all(void)
{
    for (unsigned i = 0; i < row_threads; i++) {
        if (stubs_has_thread(i)) {
            stubs_as(i);
            stubs_end_thread();
        }
    }
    stubs_as_nobody();
}

static void check_nothing_is_left(void)
{
    for (unsigned i = 0; i < stubs.run_count; i++)
        SHOULD(stubs.runs[i].returned || slab_at(stubs.runs[i].first)->kind != RUN_SLAB,
               "all blocks are free, all threads have ended, and a slab is left");
}

/* A refill must use the free blocks of the current and the parked slabs before it makes a new
 * slab. */
static void check_refills_find(unsigned thread)
{
    struct heap *heap = stubs.now[thread];
    unsigned room = 0;
    for (unsigned i = 0; i < stubs.run_count; i++) {
        struct slab *slab = slab_at(stubs.runs[i].first);
        if (!stubs.runs[i].returned && slab->kind == RUN_SLAB &&
            atomic_load(&slab->owner) == heap && remote_state(slab) != REMOTE_FULL) {
            bool met[BLOCKS] = {false};
            room += slab->capacity - count_batched(slab, heap, met);
        }
    }
    for (unsigned i = 0; i < stubs.block_count; i++) {
        struct slab *slab = stubs_slab(stubs.blocks[i].p);
        if (stubs.blocks[i].out && atomic_load(&slab->owner) == heap &&
            remote_state(slab) != REMOTE_FULL)
            room--;
    }
    unsigned runs = stubs.run_count;
    stubs_as(thread);
    while (room-- > 0)
        stubs_malloc(row_size());
    SHOULD(stubs.run_count == runs, "a slab was made while there was room in another");
}

/* Checks that a forked child can go on: its only thread, the forking one, frees and allocates
 * blocks. */
static void check_child(void)
{
    stubs_as(forker);
    if (!stubs_has_thread(forker))
        stubs_begin_thread();
    heap_check(thread_heap);
    free_all();
    for (unsigned i = 0; i < 2 * row_capacity(); i++)
        stubs_malloc(row_size());
    free_all();
    heap_check(thread_heap);
    stubs_end_thread();
}

/* Checks that a child of a fork without handlers can allocate and free. No lock is waited for, and
 * no block is handed out twice. */
static void check_new_child(void)
{
    stubs_as(forker);
    for (unsigned i = 0; i < 2 * row_capacity(); i++)
        stubs_malloc(row_size());
    free_all();
    for (unsigned i = 0; i < row_capacity(); i++)
        stubs_malloc(row_size());
}

static void check(void)
{
    /* heap_check() need not hold while a call of the heap's thread is interrupted. */
    if (forked && (stubs.new_child || stubs.in_handler)) {
        check_new_child();
        return;
    }
    if (forked) {
        check_child();
        return;
    }
    stubs_as_nobody();
    check_places();
    static struct stubs ended;
    ended = stubs;
    size_t mark = memory_mark();

    check_sweep_claims_the_rest();
    memory_undo(mark);
    stubs = ended;

    free_all();
    check_places();
    end_all();
    check_nothing_is_left();

    memory_undo(mark);
    stubs = ended;
    end_all();
    check_places();
    free_all();
    check_nothing_is_left();

    memory_undo(mark);
    stubs = ended;
    if (stubs_has_thread(0))
        check_refills_find(0);
}

/* --- exploring -------------------------------------------------------------------------------- */

static bool explore(const struct row *what, unsigned stale)
{
    row = what;
    char name[128];
    int length = snprintf(name, sizeof name, "%s, %u:", start_names[row->start], row->live);
    row_threads = 0;
    while (row_threads < MODEL_CHECKER_THREADS_MAX && row->scripts[row_threads] != NULL) {
        const char *script = row->scripts[row_threads];
        length += snprintf(name + length, sizeof name - (size_t)length, "%s %s",
                           row_threads > 0 ? " |" : "", *script == '\0' ? "-" : script);
        row_threads++;
    }
    if (found || (only != NULL && strcmp(only, name) != 0))
        return true;
    struct model_checker_plan plan = {
        .name = name,
        .threads = row_threads,
        .setup = setup,
        .begin = begin,
        .body = body,
        .enter = stubs_enter,
        .leave = stubs_leave,
        .check = check,
        .stale_most = stale,
        .executions_most = stale == 0 ? (is_long || must_fail ? UINT64_MAX : EXECUTIONS)
                           : is_long  ? STALE_EXECUTIONS_LONG
                                      : STALE_EXECUTIONS,
        .replay = replay,
    };
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    struct model_checker_result result = model_checker_explore(&plan);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double seconds =
        (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9;
    printf("  %-38s %u stale: %9llu executions, %7llu cut, %3u steps, %6.2f s%s\n", name, stale,
           (unsigned long long)result.executions, (unsigned long long)result.cut, result.longest,
           seconds, result.failed || result.exhausted || replay != NULL ? "" : ", not all orders");
    fflush(stdout);
    all_executions += result.executions;
    found = must_fail && result.failed;
    return !result.failed;
}

static bool explore_all(const struct row *rows, size_t row_count)
{
    for (size_t i = 0; i < row_count; i++) {
        if (!explore(&rows[i], 0))
            return false;
        if (stale_most > 0 && !must_fail && !explore(&rows[i], stale_most))
            return false;
    }
    return true;
}

#define EXPLORE(...)                                                                               \
    do {                                                                                           \
        static const struct row rows[] = {__VA_ARGS__};                                            \
        CHECK(explore_all(rows, COUNT_OF(rows)));                                                  \
    } while (0)

TEST(a_sweep_during_frees)
{
    EXPLORE({PARKED, 2, {"f0", "f1", "s"}}, {PARKED_BY_POST, 2, {"f0", "f1", "s"}},
            {FULL, 8, {"f0", "f1", "s"}}, {PARKED, 2, {"sf0", "f1"}}, {PARKED, 2, {"f0s", "f1"}},
            {PARKED_BY_POST, 2, {"f0s", "f1"}}, {PARKED, 2, {"", "f0f1", "s"}},
            {PARKED, 2, {"x", "f0f1", "s"}}, {PARKED, 2, {"m", "f0f1", "s"}},
            {PARKED_BY_POST, 3, {"f0f1", "f2", "s"}}, {PARKED, 2, {"f0", "f1s", "s"}},
            {TWO_PARKED, 1, {"f0", "g0", "s"}});
}

TEST(a_local_free_during_a_remote_free)
{
    EXPLORE({CURRENT, 2, {"f0", "f1"}}, {PARKED, 2, {"f0", "f1"}},
            {PARKED_BY_POST, 2, {"f0", "f1"}}, {FULL, 8, {"f0", "f1"}}, {PARKED, 3, {"f0f1", "f2"}},
            {PARKED_BY_POST, 3, {"f0f1", "f2"}}, {PARKED_BY_POST, 3, {"f0", "f1", "f2"}});
}

TEST(the_last_two_blocks_freed_by_two_threads)
{
    EXPLORE({CURRENT, 2, {"", "f0", "f1"}}, {PARKED, 2, {"", "f0", "f1"}},
            {PARKED_BY_POST, 2, {"", "f0", "f1"}}, {FULL, 8, {"", "f0", "f1"}},
            {ENDED, 2, {"", "f0", "f1"}}, {ENDED_FULL, 8, {"", "f0", "f1"}});
}

TEST(three_frees)
{
    EXPLORE({CURRENT, 3, {"f0", "f1", "f2"}}, {PARKED, 3, {"f0", "f1", "f2"}},
            {FULL, 8, {"f0", "f1", "f2"}}, {ENDED, 3, {"f0", "f1", "f2"}});
}

TEST(two_heaps_adopt)
{
    EXPLORE({ENDED, 1, {"", "m", "m"}}, {ENDED, 1, {"f0", "m", "m"}}, {ENDED, 1, {"", "m", "nm"}},
            {ENDED, 1, {"", "nm", "nm"}}, {ENDED, 1, {"", "f0", "nm"}},
            {ENDED, 2, {"", "m", "nf0"}}, {ENDED, 1, {"", "f0", "mmmmmmmm"}});
}

TEST(a_heap_is_emptied_during_frees_and_adoptions)
{
    EXPLORE({ENDED, 1, {"", "f0", "e"}}, {ENDED, 2, {"", "f0", "f1", "e"}},
            {ENDED, 1, {"", "m", "e"}}, {ENDED, 2, {"", "f0", "mf1", "e"}},
            {ENDED_FULL, 8, {"", "f0", "e"}}, {ENDED_TWO_FULL, 8, {"", "f0", "e"}},
            {ENDED_TWO_FULL, 8, {"", "g0", "e"}}, {ENDED, 1, {"", "f0", "n", "e"}},
            {ENDED, 1, {"", "f0", "ee"}});
}

TEST(a_remote_free_during_an_adoption)
{
    EXPLORE({ENDED, 1, {"", "f0", "m"}}, {ENDED, 2, {"", "f0", "mf1"}},
            {ENDED, 2, {"f0", "f1", "m"}}, {ENDED_FULL, 8, {"", "f0", "m"}});
}

TEST(a_remote_free_during_an_exit_and_an_adoption)
{
    EXPLORE({CURRENT, 1, {"x", "f0", "m"}}, {PARKED, 1, {"x", "f0", "m"}},
            {PARKED_BY_POST, 1, {"x", "f0", "m"}}, {FULL, 8, {"x", "f0", "m"}},
            {PARKED, 1, {"x", "f0", "nm"}}, {ENDED, 1, {"", "f0", "nmx"}},
            {PARKED, 1, {"x", "nm", "nm"}});
}

TEST(two_slabs_of_one_heap)
{
    EXPLORE({TWO_PARKED, 1, {"f0g0"}}, {TWO_PARKED, 1, {"", "f0", "g0"}},
            {TWO_PARKED, 1, {"m", "f0", "g0"}}, {TWO_PARKED, 1, {"x", "f0", "g0"}},
            {TWO_PARKED, 2, {"f0g0", "f1", "g1"}});
}

TEST(looks_during_remote_frees)
{
    EXPLORE({PARKED, 2, {"l", "f0f1"}}, {PARKED, 3, {"l", "f0", "f1f2"}},
            {PARKED_BY_POST, 3, {"l", "f0", "f1f2"}}, {PARKED, 3, {"ll", "f0", "f1f2"}},
            {PARKED, 3, {"lf0", "f1f2"}}, {PARKED, 3, {"lf0l", "f1", "f2"}},
            {PARKED, 4, {"lf0f1", "f2f3"}}, {PARKED, 3, {"lm", "f0f1f2"}},
            {PARKED, 3, {"lx", "f0", "f1f2"}}, {PARKED, 3, {"l", "f0f1f2", "s"}},
            {TWO_PARKED, 2, {"l", "f0g0", "f1g1"}}, {PARKED_8, 4, {"l", "f0f1f2f3"}},
            {PARKED, 2, {"l", "f0", "Ff1"}}, {PARKED, 2, {"l", "f0", "Uf1"}},
            {PARKED, 3, {"lf0", "Hmf1", "f2"}});
}

TEST(a_fork_during_all_operations)
{
    EXPLORE({PARKED, 2, {"f0", "Ff1"}}, {CURRENT, 8, {"m", "Ff1"}}, {PARKED, 2, {"x", "Ff1"}},
            {ENDED, 2, {"f0", "Ff1"}}, {ENDED, 2, {"", "m", "Ff0"}},
            {PARKED_BY_POST, 2, {"f0", "Ff1"}}, {FULL, 8, {"f0", "Ff1"}},
            {PARKED, 2, {"Ff1", "f0"}}, {PARKED_BY_POST, 3, {"f0", "f1", "Ff2"}},
            {CURRENT, 8, {"m", "f0", "Ff1"}}, {PARKED, 2, {"x", "f0", "Ff1"}},
            {ENDED, 2, {"Ff0", "f1", "m"}});
}

TEST(a_child_of_a_fork_without_handlers_waits_for_no_lock)
{
    EXPLORE({PARKED, 2, {"f0", "Uf1"}}, {CURRENT, 8, {"m", "Uf1"}}, {PARKED, 2, {"x", "Uf1"}},
            {PARKED, 2, {"f0", "Um"}}, {FULL, 8, {"f0", "Umf1"}},
            {PARKED_BY_POST, 2, {"f0", "Uf1"}}, {FULL, 8, {"Umf0", "f1", "f2"}},
            {PARKED, 2, {"Uf1m", "f0"}}, {PARKED_BY_POST, 3, {"f0", "f1", "Uf2"}},
            {CURRENT, 8, {"Umf1", "f0", "m"}}, {ENDED, 2, {"", "m", "Umf0"}});
}

TEST(a_child_of_a_fork_in_a_signal_handler_waits_for_no_lock)
{
    EXPLORE({PARKED, 2, {"f0", "Hf1"}}, {CURRENT, 8, {"m", "Hmf1"}}, {FULL, 8, {"f0f1", "Hmf2"}},
            {CURRENT, 3, {"mm", "Hm"}}, {CURRENT, 3, {"f0m", "Hmf1"}}, {PARKED, 2, {"c", "Hmf1"}},
            {PARKED, 2, {"mf0", "Hmf1"}}, {PARKED_BY_POST, 3, {"f0", "Hf2", "f1"}},
            {FULL, 8, {"f0", "Hmf1", "f2"}}, {CURRENT, 8, {"m", "Hmf1", "f0"}});
}

TEST(remote_frees_cross_an_eighth_during_the_owners_event)
{
    EXPLORE({FULL, 8, {"f0f1", "f2"}}, {FULL, 8, {"f0", "f1", "f2"}}, {FULL_16, 15, {"f0f1", "f2"}},
            {FULL_16, 15, {"f0", "f1", "f2"}}, {FULL_16, 16, {"f0f1", "f2f3"}});
}

TEST(slabs_of_four_blocks)
{
    EXPLORE({FULL_4, 4, {"f0f1", "f2"}}, {FULL_4, 4, {"f0", "f1", "f2"}},
            {FULL_4, 4, {"", "f0f1", "f2f3"}}, {FULL_4, 4, {"m", "f0"}},
            {FULL_4, 4, {"x", "f0", "f1"}}, {FULL_4, 4, {"f0cf1", "f2"}},
            {CURRENT_4, 4, {"m", "f0f1"}}, {CURRENT_4, 3, {"mm", "f0"}},
            {CURRENT_4, 4, {"m", "f0", "f1"}});
}

TEST(batches_of_remote_frees)
{
    EXPLORE({PARKED_8, 4, {"", "f0f1f2f3"}}, {PARKED_8, 5, {"f4", "f0f1f2f3"}},
            {PARKED_8, 3, {"m", "f0f1f2m"}}, {PARKED_8, 3, {"f0", "f1f2c"}},
            {PARKED_8, 4, {"", "f0f1x", "f2f3x"}}, {PARKED_8, 7, {"", "f0f1f2f3", "f4f5f6c"}},
            {PARKED_8, 4, {"x", "f0f1f2f3", "m"}}, {PARKED_8, 3, {"x", "f0f1mf2"}},
            {PARKED_8, 3, {"x", "f0f1x", "nmf2"}}, {PARKED_8, 4, {"c", "f0f1f2f3", "s"}},
            {FULL_8, 8, {"f4", "f0f1f2f3"}}, {FULL_8, 7, {"f4f5", "f0f1f2f3"}},
            {FULL_8, 8, {"m", "f0f1f2f3"}}, {FULL_8, 8, {"", "f0f1f2f3", "f4f5f6f7"}},
            {FULL_8, 8, {"f4", "f0f1f2f3", "f5x"}}, {CURRENT_8, 8, {"m", "f0f1f2f3"}},
            {CURRENT_8, 8, {"mm", "f0f1f2f3", "f4c"}});
}

TEST(batches_and_a_fork)
{
    EXPLORE({PARKED_8, 4, {"f0", "f1Ff2f3"}}, {PARKED_8, 4, {"", "f0f1", "f2Ff3"}},
            {PARKED_8, 5, {"f4", "f0f1f2f3", "F"}}, {PARKED_8, 5, {"f4", "f0f1f2Uf3"}},
            {CURRENT_8, 8, {"m", "f0f1f2Umf3"}}, {FULL_8, 8, {"f4", "f0f1f2f3", "Um"}});
}

TEST(remote_frees_during_the_owners_refill)
{
    EXPLORE({CURRENT, 8, {"m", "f0"}}, {CURRENT, 7, {"mm", "f0"}}, {CURRENT, 8, {"m", "f0f1"}},
            {CURRENT_16, 16, {"m", "f0f1"}}, {PARKED, 1, {"m", "f0"}},
            {PARKED_BY_POST, 1, {"m", "f0"}}, {PARKED_BY_POST, 2, {"f0m", "f1"}},
            {FULL, 8, {"m", "f0"}}, {FULL, 8, {"f0m", "f1"}}, {FULL, 8, {"m", "f0", "f1"}},
            {PARKED, 2, {"m", "f0", "f1"}}, {PARKED_BY_POST, 2, {"m", "f0", "f1"}},
            {CURRENT, 8, {"m", "f0", "f1"}});
}

TEST(remote_frees_during_the_owners_exit)
{
    EXPLORE({CURRENT, 1, {"x", "f0"}}, {PARKED, 1, {"x", "f0"}}, {PARKED_BY_POST, 1, {"x", "f0"}},
            {PARKED_BY_POST, 2, {"f0x", "f1"}}, {FULL, 8, {"x", "f0"}},
            {CURRENT, 2, {"x", "f0", "f1"}}, {PARKED, 2, {"x", "f0", "f1"}},
            {FULL, 8, {"x", "f0", "f1"}}, {PARKED_BY_POST, 2, {"x", "f0", "f1"}});
}

TEST(an_owner_collects_during_frees)
{
    EXPLORE({CURRENT, 2, {"c", "f0", "f1"}}, {CURRENT, 2, {"cf0", "f1"}},
            {CURRENT, 1, {"cm", "f0"}}, {PARKED, 2, {"c", "f0", "f1"}},
            {PARKED_BY_POST, 2, {"c", "f0", "f1"}}, {FULL, 8, {"c", "f0", "f1"}},
            {PARKED, 2, {"f0c", "f1"}}, {PARKED_BY_POST, 2, {"f0c", "f1"}},
            {FULL, 8, {"f0cf1", "f2"}}, {PARKED, 1, {"cx", "f0", "s"}},
            {TWO_PARKED, 1, {"c", "f0", "g0"}}, {PARKED, 1, {"c", "f0", "s"}},
            {CURRENT, 2, {"cf0m", "f1", "s"}});
}

int main(int argc, char **argv)
{
    const char *name = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--long") == 0)
            is_long = true, stale_most = 2;
        else if (strcmp(argv[i], "--must-fail") == 0)
            must_fail = true;
        else if (strcmp(argv[i], "--stale") == 0 && i + 1 < argc)
            stale_most = (unsigned)atoi(argv[++i]);
        else if (strcmp(argv[i], "--scenario") == 0 && i + 1 < argc)
            only = argv[++i];
        else if (strcmp(argv[i], "--replay") == 0 && i + 1 < argc)
            replay = argv[++i];
        else
            name = argv[i];
    }
    stubs_make();
    char *arguments[] = {argv[0], (char *)name, NULL};
    int failed = test_main(name == NULL ? 1 : 2, arguments);
    printf("%llu executions\n", (unsigned long long)all_executions);
    return must_fail ? !failed : failed;
}
