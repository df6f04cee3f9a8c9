/* alloc_refused.c - runs a scenario in which the kernel refuses calls: each call once, several in a
 * row, or every request beyond an amount of memory. A function may return NULL only after a
 * refusal. No existing block may change, and afterwards all requests must succeed again.
 *
 * Every scenario runs in a process of its own, so that it begins with an empty heap. The seed is
 * printed; SEED=… repeats it. By default every EVERY-th call is refused once, beginning with a call
 * that the seed chooses. With --long every call is refused once.
 */
#include "alloc/alloc.h"

#include "alloc/page_heap.h"
#include "alloc/shared_heap.h"
#include "alloc_os.h"
#include "base/random.h"
#include "test.h"

#include <pthread.h>
#include <sys/wait.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum {
    CALLS_AT_LEAST = 2000, /* every scenario makes this many system calls */
    SLOTS = 160,
    EDGE = 64, /* bytes that are filled at each end of a block */
    THREADS = 24,
    AT_ONCE = 3,
    ENDED_WELL = 17,
#if defined(__SANITIZE_THREAD__)
    /* With this sanitizer, each scenario takes a second, so fewer calls are refused. */
    EVERY = 3840,
#elif defined(__SANITIZE_ADDRESS__)
    EVERY = 320,
#else
    EVERY = 192,
#endif
};

static uint64_t seed = 1;

/* The number of system calls from one refused call to the next: EVERY, or 1 with --long. */
static unsigned every = EVERY;

/* A failed expectation ends the process of the scenario. */
#define EXPECT(condition) fake_expect(condition, "not true: " #condition)

/* --- blocks ----------------------------------------------------------------------------------- */

struct slot {
    unsigned char *p;
    size_t size;
    unsigned char fill;
};

/* Returns how many bytes at the end of the block are filled, in addition to those at its beginning.
 * For three of four large blocks that is 0, because touching a page there takes time. */
static size_t end_of(const struct slot *slot)
{
    return slot->size < EDGE ? 0 : slot->size < 32 * KIB || slot->fill % 4 == 0 ? EDGE : 0;
}

static size_t begin_of(const struct slot *slot)
{
    return slot->size < EDGE ? slot->size : EDGE;
}

static void fill(struct slot *slot, struct random *random)
{
    slot->fill = (unsigned char)random_next(random);
    memset(slot->p, slot->fill, begin_of(slot));
    memset(slot->p + slot->size - end_of(slot), slot->fill, end_of(slot));
}

static bool holds(const unsigned char *p, size_t size, unsigned char value)
{
    return size == 0 || (p[0] == value && memcmp(p, p + 1, size - 1) == 0);
}

static void verify(const struct slot *slot)
{
    EXPECT(holds(slot->p, begin_of(slot), slot->fill));
    EXPECT(holds(slot->p + slot->size - end_of(slot), end_of(slot), slot->fill));
    EXPECT(alloc_usable_size(slot->p) >= slot->size);
}

static void release(struct slot *slot)
{
    verify(slot);
    alloc_free(slot->p);
    slot->p = NULL;
}

static size_t any_size(struct random *random)
{
    uint64_t kind = random_below(random, 100);
    return (size_t)random_below(random, kind < 30   ? 600
                                        : kind < 45 ? 20 * KIB
                                        : kind < 98 ? 200 * KIB
                                                    : 24 * MIB);
}

static void allocate(struct slot *slot, struct random *random)
{
    unsigned before = fake_os.refused_count;
    uint64_t kind = random_below(random, 10);
    size_t alignment = 16;
    slot->size = any_size(random);
    if (kind == 0) {
        alignment = (size_t)16 << random_below(random, 17);
        slot->p = alloc_aligned(alignment, slot->size);
    } else if (kind < 3 && slot->size < 50 * KIB) { /* clearing more takes too long */
        slot->p = alloc_calloc(1, slot->size);
        size_t end = slot->size < 32 * KIB ? slot->size : EDGE; /* comparing more takes too long */
        EXPECT(slot->p == NULL ||
               (holds(slot->p, end, 0) && holds(slot->p + slot->size - end, end, 0)));
    } else {
        slot->p = alloc_malloc(slot->size);
    }
    EXPECT(slot->p != NULL || fake_os.refused_count != before);
    EXPECT((uintptr_t)slot->p % alignment == 0);
    if (slot->p != NULL)
        fill(slot, random);
}

static void resize(struct slot *slot, struct random *random)
{
    verify(slot);
    unsigned before = fake_os.refused_count;
    size_t size = slot->size / 2; /* shrinks in place, because copying takes too long */
    if (slot->size < 16 * KIB)
        size = any_size(random) % (50 * KIB);
    else if ((slot->size < 50 * KIB || slot->size >= MIB) && random_below(random, 2) == 0)
        size = slot->size + slot->size / 4; /* a large block grows by moving its pages */
    unsigned char *p = alloc_realloc(slot->p, size);
    EXPECT(p != NULL || fake_os.refused_count != before);
    if (p == NULL)
        return;
    EXPECT(holds(p, begin_of(slot) < size ? begin_of(slot) : size, slot->fill));
    slot->p = p;
    slot->size = size;
    fill(slot, random);
}

static void operate(struct slot *slots, unsigned count, struct random *random)
{
    for (unsigned i = 0; i < count; i++) {
        struct slot *slot = &slots[random_below(random, SLOTS)];
        uint64_t kind = random_below(random, 8);
        if (slot->p == NULL)
            allocate(slot, random);
        else if (kind < 2)
            resize(slot, random);
        else
            release(slot);
    }
}

/* --- a scenario ------------------------------------------------------------------------------- */

static struct slot blocks[SLOTS];
static struct slot much[THREADS];

struct worker {
    struct random random;
    struct slot slots[SLOTS];
};

/* The body of a thread. It takes over some blocks of the main thread, operates on them and ends.
 * Some blocks that the thread allocates outlive it. */
static void *work(void *argument)
{
    struct worker *worker = argument;
    operate(worker->slots, 40, &worker->random);
    return NULL;
}

static void take_turns(struct worker *workers, unsigned count, struct random *random)
{
    pthread_t ids[AT_ONCE];
    for (unsigned i = 0; i < count; i++) {
        workers[i].random = random_of(random_next(random));
        for (unsigned k = i; k < SLOTS; k += count) {
            workers[i].slots[k] = blocks[k];
            blocks[k].p = NULL;
        }
        EXPECT(pthread_create(&ids[i], NULL, work, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < count; i++)
        EXPECT(pthread_join(ids[i], NULL) == 0);
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < SLOTS; k++) {
            struct slot *slot = &workers[i].slots[k];
            if (slot->p != NULL && blocks[k].p != NULL)
                release(slot);
            else if (slot->p != NULL)
                blocks[k] = *slot;
            slot->p = NULL;
        }
}

/* Puts some blocks into a shared heap. They outlive the heap, unless it is destroyed with its
 * blocks. */
static void use_heap(bool destroyed, struct random *random)
{
    unsigned before = fake_os.refused_count;
    struct heap *heap = shared_heap_create();
    EXPECT(heap != NULL || fake_os.refused_count != before);
    if (heap == NULL)
        return;
    for (unsigned i = 0; i < SLOTS / 4; i++) {
        struct slot *slot = &blocks[random_below(random, SLOTS)];
        if (slot->p != NULL)
            release(slot);
        slot->size = any_size(random);
        before = fake_os.refused_count;
        bool zero;
        slot->p = shared_heap_allocate(heap, slot->size, 1, &zero);
        EXPECT(slot->p != NULL || fake_os.refused_count != before);
        if (slot->p == NULL)
            continue;
        fill(slot, random);
        if (random_below(random, 2) == 0)
            release(slot);
        else if (destroyed)
            slot->p = NULL;
    }
    if (destroyed)
        shared_heap_destroy(heap);
    else
        shared_heap_release(heap);
}

static void check(void)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (blocks[i].p != NULL)
            verify(&blocks[i]);
    if (thread_heap != &heap_none)
        heap_check(thread_own_heap());
    shared_heap_check_all();
    heap_check_lists();
    page_heap_check();
}

/* Allocates 60 MiB, which is more memory than the allocator had before. Fills only the two ends. */
static void grow(struct slot *slot)
{
    unsigned before = fake_os.refused_count;
    slot->size = 60 * MIB;
    slot->p = alloc_malloc(slot->size);
    EXPECT(slot->p != NULL || fake_os.refused_count != before);
    if (slot->p != NULL)
        fill(slot, &(struct random){seed});
}

/* Runs the scenario: threads start and end, blocks of all sizes are allocated, resized and freed,
 * and idle memory is given back again and again. */
static void scenario(void)
{
    static struct worker workers[AT_ONCE];
    struct random random = random_of(seed);
    operate(blocks, 2 * SLOTS, &random);
    for (unsigned i = 0; i < THREADS; i++) {
        grow(&much[i]);
        use_heap(i % 2 == 0, &random);
        take_turns(workers, i % 4 == 3 ? AT_ONCE : 1, &random);
        for (unsigned k = 0; k < 25; k++) {
            operate(blocks, 12, &random);
            page_heap_purge(k == 24 ? 64 * MIB : 0);
        }
        if (thread_heap != &heap_none)
            heap_collect(thread_own_heap());
        heap_sweep();
        check();
    }
}

/* Checks that all requests succeed again: the allocator can give back idle memory, and can allocate
 * blocks of every class and a block larger than any before. */
static void resume(void)
{
    fake_os.refuse_call = fake_os.refuse_after = 0;
    fake_os.limit_bytes = 0;
    for (unsigned i = 0; i < SLOTS; i++)
        if (blocks[i].p != NULL)
            release(&blocks[i]);
    for (unsigned i = 0; i < THREADS; i++)
        if (much[i].p != NULL)
            release(&much[i]);
    page_heap_purge(0);
    EXPECT(page_heap_statistics().idle_slices == 0 || os_page_bytes() > SLICE_BYTES);
    struct random random = random_of(seed);
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++) {
        blocks[class].size = size_class_bytes(class);
        blocks[class].p = alloc_malloc(blocks[class].size);
        EXPECT(blocks[class].p != NULL);
        fill(&blocks[class], &random);
    }
    struct slot large = {.size = 200 * MIB};
    large.p = alloc_calloc(1, large.size);
    EXPECT(large.p != NULL && holds(large.p, MIB, 0) && holds(large.p + large.size - MIB, MIB, 0));
    fill(&large, &random);
    check();
    release(&large);
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++)
        release(&blocks[class]);
    check();
}

/* --- processes -------------------------------------------------------------------------------- */

/* The system calls of one scenario. */
struct counts {
    unsigned calls;
    unsigned claims;  /* calls that requested memory */
    unsigned refused; /* calls that fake_os refused */
};

/* Runs the scenario in a child process, which inherits the settings of fake_os. Returns true if the
 * scenario and resume() passed, and fills `*counts`. */
static bool scenario_passes(struct counts *counts)
{
    int ends[2];
    *counts = (struct counts){0};
    fflush(stdout);
    if (pipe(ends) != 0)
        return false;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(100);
        if (fake_os.trapping)
            fake_set_trap();
        scenario();
        struct counts here = {fake_os.call_count, fake_os.claim_count, fake_os.refused_count};
        EXPECT(write(ends[1], &here, sizeof here) == sizeof here);
        resume();
        _exit(ENDED_WELL);
    }
    int status = 0;
    bool ended = pid > 0 && waitpid(pid, &status, 0) == pid;
    close(ends[1]);
    bool said = read(ends[0], counts, sizeof *counts) == sizeof *counts;
    close(ends[0]);
    return ended && said && WIFEXITED(status) && WEXITSTATUS(status) == ENDED_WELL;
}

static void reset(void)
{
    memset(&fake_os, 0, sizeof fake_os);
    fake_os.losing = true;
}

/* --- tests ------------------------------------------------------------------------------------ */

TEST(a_scenario_without_refusals_makes_many_calls)
{
    struct counts counts;
    reset();
    CHECK(scenario_passes(&counts));
    CHECK(counts.calls >= CALLS_AT_LEAST);
    CHECK(counts.refused == 0);
    printf("%u system calls, %u of them for more memory\n", counts.calls, counts.claims);
}

static void refuse_each(unsigned step, unsigned more)
{
    for (unsigned call = 1 + (unsigned)seed % step; call <= CALLS_AT_LEAST; call += step) {
        struct counts counts;
        reset();
        fake_os.refuse_call = call;
        fake_os.refuse_more = more;
        bool right = scenario_passes(&counts) && counts.refused > 0;
        if (!right)
            fprintf(stderr, "failed when call %u and %u calls after it were refused\n", call, more);
        REQUIRE(right);
    }
}

TEST(any_single_call_can_be_refused)
{
    refuse_each(every, 0);
}

TEST_WITHOUT_RACES(calls_in_a_row_can_be_refused)
{
    unsigned step = every < 8 ? 16 : every * 4;
    refuse_each(step, 3);
    refuse_each(step, 40);
    refuse_each(step * 4, CALLS_AT_LEAST);
}

/* `fake_os.limit_bytes` stands for an address-space limit, or for a kernel that does not
 * overcommit. */
TEST_WITHOUT_RACES(memory_can_run_out_at_any_point)
{
    size_t step = (every > 1000 ? 18 : every > 1 ? 9 : 1) * (MIB + 64 * KIB);
    for (size_t limit = 64 * KIB; limit < 64 * MIB; limit += step) {
        struct counts counts;
        reset();
        fake_os.limit_bytes = limit;
        bool right = scenario_passes(&counts) && counts.refused > 0;
        if (!right)
            fprintf(stderr, "failed with a limit of %zu bytes\n", limit);
        REQUIRE(right);
    }
}

TEST_WITHOUT_RACES(memory_that_was_given_back_is_touched_only_by_its_next_run)
{
    struct counts counts;
    reset();
    fake_os.trapping = true;
    REQUIRE(scenario_passes(&counts));
    CHECK(counts.calls >= CALLS_AT_LEAST);
    fake_os.refuse_call = 100;
    fake_os.refuse_more = 300;
    CHECK(scenario_passes(&counts) && counts.refused > 0);
}

/* Other machines have larger OS pages. A page that is partly in use may not be given back. */
TEST_WITHOUT_RACES(an_os_page_may_be_as_large_as_a_slice_and_larger)
{
    for (size_t bytes = 16 * KIB; bytes <= 64 * KIB; bytes *= 4) {
        struct counts counts;
        reset();
        fake_os.page_bytes = bytes;
        bool right = scenario_passes(&counts) && counts.calls > 200;
        if (!right)
            fprintf(stderr, "failed with OS pages of %zu bytes\n", bytes);
        CHECK(right);
    }
}

int main(int argc, char **argv)
{
    if (getenv("SEED") != NULL)
        seed = strtoull(getenv("SEED"), NULL, 10);
    printf("seed %llu; set SEED=… to repeat another\n", (unsigned long long)seed);
    if (argc > 1 && strcmp(argv[1], "--long") == 0) {
        every = 1;
        argv[1] = argv[0];
        argv++;
        argc--;
    }
    return test_main(argc, argv);
}
