/* random_calls.c - compares random calls with a model: contents, overlap, alignment, usable size,
 * errno.
 *
 *     random_calls SEED OPERATIONS THREADS [fork] [limit]
 *
 * Each thread has blocks of its own. Now and then it swaps some with other threads, so that threads
 * free and resize blocks that they did not allocate. Threads end, and new threads take over their
 * blocks. At the first difference, the program prints one line with the seed and calls abort().
 * With one thread and without `limit`, the same seed always gives the same calls.
 *
 *     fork     now and then a thread forks. The child inspects every block of every thread,
 *              operates on them with two threads, may fork itself, frees all blocks and ends
 *     limit    now and then the address space is limited. Only then may a call fail: with NULL and
 *              ENOMEM, and without changing existing blocks
 *
 * To find overlap, a map has one bit for each 16 bytes of a live block. To find changed contents,
 * each block is filled with a pattern of its own. OPERATIONS does not include the operations of
 * children, nor the allocations that use up a limited address space.
 */
#include "conformance.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum {
    SLOTS = 512, /* most blocks of each thread */
    SHARED = 256,
    LIVES = 8,       /* threads that use the same blocks in turn */
    EDGE = 1024,     /* larger blocks are filled only at both ends */
    CHUNK = 1 << 16, /* bytes that one entry of the map covers */
    CHUNKS = 1 << 16,
    WORDS = CHUNK / 16 / 64,
    CHECK_EVERY = 50000,
    FORK_EVERY = 20000,
    LIMIT_EVERY = 20000,
    CHILD_CALLS = 1000, /* operations of each thread of a child */
    LIMITED_CALLS = 500,
    GREEDY = 400, /* blocks of 1 to 4 MiB that are enough to reach a limit */
    HANGS_AFTER_S = 100,
};

struct slot {
    unsigned char *p;
    size_t size;
    size_t alignment;
    size_t usable;
    uint64_t pattern;
};

struct shared {
    atomic_flag taken;
    struct slot slot;
};

struct lane {
    uint64_t state;
    uint64_t calls;            /* operations of each of the LIVES threads of the lane */
    struct slot *_Atomic busy; /* the slot of the current operation; unusable in a child */
    struct slot slots[SLOTS];
};

static uint64_t seed;
static size_t threads;
static struct lane *lanes;
static struct shared shared[SHARED];
static bool forks;
static bool limits;
static unsigned generation; /* 0 in the first process; forks add 1 */
static _Atomic unsigned long children;
static _Atomic unsigned long refused;
static void (*check)(void);

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "seed %llu: line %d: not true: %s\n", (unsigned long long)seed,        \
                    __LINE__, #condition);                                                         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Maps memory for the test's own tables. Called before the first limit is set. */
static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    EXPECT(p != MAP_FAILED);
    return p;
}

/* --- the map: a hash table with open addressing, from a chunk's number to its bits ------------ */

static struct entry {
    _Atomic uintptr_t chunk; /* number of the chunk plus 1; entries stay forever */
    _Atomic uint64_t bits[WORDS];
} *map;

static _Atomic uint64_t *bits_of(uintptr_t chunk)
{
    for (size_t i = chunk * UINT64_C(0x9e3779b97f4a7c15) >> 48;; i = (i + 1) % CHUNKS) {
        uintptr_t there = atomic_load_explicit(&map[i].chunk, memory_order_relaxed);
        if (there == chunk + 1)
            return map[i].bits;
        if (there == 0 && atomic_compare_exchange_strong(&map[i].chunk, &there, chunk + 1))
            return map[i].bits;
        if (there == chunk + 1)
            return map[i].bits;
    }
}

/* Sets or clears the bits of a block. Before that, each bit must have the opposite value. */
static void turn(uintptr_t from, size_t bytes, bool to)
{
    for (uintptr_t end = from + bytes; from < end;) {
        _Atomic uint64_t *bits = bits_of(from / CHUNK);
        do {
            unsigned first = (unsigned)(from / 16 % 64);
            uint64_t count = (end - from + 15) / 16;
            uint64_t mask =
                count + first >= 64 ? ~UINT64_C(0) << first : ((UINT64_C(1) << count) - 1) << first;
            _Atomic uint64_t *word = &bits[from % CHUNK / 16 / 64];
            /* A bit that is set already belongs to a block that overlaps this one. */
            if (to)
                EXPECT((atomic_fetch_or(word, mask) & mask) == 0);
            else
                EXPECT((atomic_fetch_and(word, ~mask) & mask) == mask);
            from = (from / 1024 + 1) * 1024;
        } while (from < end && from % CHUNK != 0);
    }
}

/* --- blocks ----------------------------------------------------------------------------------- */

typedef uint64_t __attribute__((may_alias)) word;

/* Fills the bytes from `from`, where a word starts, to before `to`. If the last word is incomplete,
 * writes only its bytes before `to`. */
static void fill_range(unsigned char *p, size_t from, size_t to, uint64_t pattern)
{
    word *words = (word *)p;
    for (size_t i = from / 8; i < to / 8; i++)
        words[i] = pattern;
    for (size_t at = to & ~(size_t)7; at < to; at++)
        p[at] = (unsigned char)(pattern >> at % 8 * 8);
}

static bool has_range(const unsigned char *p, size_t from, size_t to, uint64_t pattern)
{
    const word *words = (const word *)p;
    uint64_t differs = 0;
    for (size_t i = from / 8; i < to / 8; i++)
        differs |= words[i] ^ pattern;
    for (size_t at = to & ~(size_t)7; at < to; at++)
        differs |= p[at] ^ (unsigned char)(pattern >> at % 8 * 8);
    return differs == 0;
}

static void fill(const struct slot *slot)
{
    if (slot->size <= 2 * EDGE) {
        fill_range(slot->p, 0, slot->size, slot->pattern);
    } else {
        fill_range(slot->p, 0, EDGE, slot->pattern);
        fill_range(slot->p, (slot->size - EDGE) & ~(size_t)7, slot->size, slot->pattern);
    }
}

/* Returns whether the first `size` bytes of a block hold the pattern. The block had `filled` bytes
 * when it was filled, which may be more than `size`. */
static bool has(const unsigned char *p, size_t filled, size_t size, uint64_t pattern)
{
    if (filled <= 2 * EDGE)
        return has_range(p, 0, size < filled ? size : filled, pattern);
    return has_range(p, 0, size < EDGE ? size : EDGE, pattern) &&
           (size < filled || has_range(p, (filled - EDGE) & ~(size_t)7, filled, pattern));
}

static void accept(struct slot *slot, uint64_t *state)
{
    EXPECT((uintptr_t)slot->p % slot->alignment == 0 && (uintptr_t)slot->p % 16 == 0);
    slot->usable = malloc_usable_size(slot->p);
    EXPECT(slot->usable >= slot->size);
    turn((uintptr_t)slot->p, slot->usable, true);
    slot->pattern = draw(state);
    fill(slot);
}

static void inspect(const struct slot *slot)
{
    EXPECT(malloc_usable_size(slot->p) == slot->usable);
    EXPECT(has(slot->p, slot->size, slot->size, slot->pattern));
}

/* --- refusals --------------------------------------------------------------------------------- */

static _Atomic unsigned long limited; /* odd while a limit is set */

/* Returns whether a call may fail: a limit was set before the call or during it. `before` is the
 * value of `limited` before the call. */
static bool may_fail(unsigned long before)
{
    return before % 2 == 1 || atomic_load(&limited) != before;
}

/* Checks the result `p` of a call. errno must have been 0 before the call. Returns whether `p` is a
 * block. */
static bool was_given(const void *p, unsigned long before)
{
    if (p != NULL) {
        EXPECT(errno == 0);
        return true;
    }
    EXPECT(may_fail(before) && errno == ENOMEM);
    atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed);
    errno = 0;
    return false;
}

/* --- operations ------------------------------------------------------------------------------- */

/* Returns a random size. Most sizes are below 4 KiB, and a few are up to 4 MiB. */
static size_t any_size(uint64_t *state)
{
    uint64_t kind = draw(state) >> 54;
    if (kind < 740)
        return draw_below(state, 512);
    if (kind < 960)
        return draw_below(state, 4096);
    if (kind < 1012)
        return draw_below(state, 1 << 16);
    return draw_below(state, kind == 1023 ? 1 << 22 : 1 << 18);
}

static void allocate(struct slot *slot, uint64_t *state)
{
    *slot = (struct slot){.size = any_size(state), .alignment = 16};
    void *p = NULL;
    unsigned long before = atomic_load(&limited);
    switch (draw(state) >> 60) {
    default:
        p = malloc(slot->size);
        break;
    case 1:
    case 2:
        p = calloc(1, slot->size);
        EXPECT(p == NULL || has(p, slot->size, slot->size, 0));
        break;
    case 3:
        p = realloc(NULL, slot->size);
        break;
    case 4:
        slot->alignment = (size_t)16 << draw_below(state, 9);
        p = aligned_alloc(slot->alignment, slot->size);
        break;
    case 5:
        slot->alignment = (size_t)8 << draw_below(state, draw(state) >> 60 == 0 ? 16 : 10);
        errno = posix_memalign(&p, slot->alignment, slot->size);
        break;
    case 6:
        p = reallocarray(NULL, slot->size, 1);
        break;
    }
    if (was_given(p, before)) {
        slot->p = p;
        accept(slot, state);
    }
}

static void release(struct slot *slot)
{
    inspect(slot);
    turn((uintptr_t)slot->p, slot->usable, false);
    free(slot->p);
    EXPECT(errno == 0);
    slot->p = NULL;
}

static void resize(struct slot *slot, uint64_t *state)
{
    inspect(slot);
    size_t size = any_size(state);
    if (draw(state) >> 63)
        size = slot->size + draw_below(state, slot->size / 4 + 64);
    turn((uintptr_t)slot->p, slot->usable, false);
    unsigned long before = atomic_load(&limited);
    void *p = realloc(slot->p, size);
    if (size == 0) {
        EXPECT(p == NULL && errno == 0);
        slot->p = NULL;
    } else if (was_given(p, before)) {
        EXPECT(has(p, slot->size, size, slot->pattern));
        *slot = (struct slot){.p = p, .size = size, .alignment = 16};
        accept(slot, state);
    } else {
        turn((uintptr_t)slot->p, slot->usable, true);
        inspect(slot);
    }
}

static void refuse(struct slot *slot, uint64_t *state)
{
    size_t huge = PTRDIFF_MAX - draw_below(state, 4096);
    EXPECT(malloc(huge) == NULL && errno == ENOMEM);
    errno = 0;
    EXPECT(realloc(slot->p, huge) == NULL && errno == ENOMEM);
    errno = 0;
    inspect(slot);
}

static void swap(struct slot *slot, uint64_t *state)
{
    struct shared *other = &shared[draw_below(state, SHARED)];
    if (atomic_flag_test_and_set_explicit(&other->taken, memory_order_acquire))
        return;
    struct slot mine = *slot;
    *slot = other->slot;
    other->slot = mine;
    atomic_flag_clear_explicit(&other->taken, memory_order_release);
}

static void operate(struct lane *lane, uint64_t calls)
{
    for (uint64_t call = 0; call < calls; call++) {
        struct slot *slot = &lane->slots[draw_below(&lane->state, SLOTS)];
        unsigned kind = (unsigned)(draw(&lane->state) >> 57);
        /* A child of a fork sees the memory as it was at the fork. It only relies on the order of
         * this thread's writes: `busy` first, then the slot. */
        atomic_store_explicit(&lane->busy, slot, memory_order_release);
        if (slot->p == NULL)
            allocate(slot, &lane->state);
        else if (kind < 16)
            resize(slot, &lane->state);
        else if (kind == 16)
            refuse(slot, &lane->state);
        else if (kind < 24)
            swap(slot, &lane->state);
        else
            release(slot);
        atomic_store_explicit(&lane->busy, NULL, memory_order_release);
    }
}

/* --- limits ----------------------------------------------------------------------------------- */

/* Limits the address space to its present size plus `more` bytes. */
static void limit_address_space(size_t more)
{
    char text[64] = "";
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    EXPECT(file >= 0 && read(file, text, sizeof text - 1) > 0 && close(file) == 0);
    struct rlimit limit;
    EXPECT(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = strtoul(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE) + more;
    atomic_fetch_add(&limited, 1);
    EXPECT(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void lift_limit(void)
{
    struct rlimit limit;
    EXPECT(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    EXPECT(setrlimit(RLIMIT_AS, &limit) == 0);
    if (atomic_load(&limited) % 2 == 1)
        atomic_fetch_add(&limited, 1);
}

/* Sets a limit, allocates until the limit is reached, and then makes random calls. After that,
 * lifts the limit and checks that a large request succeeds. */
static void exhaust(struct lane *lane)
{
    static atomic_flag taken = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&taken))
        return;
    static struct slot greedy[GREEDY];
    limit_address_space(draw_below(&lane->state, 1 << 22));
    size_t count = 0;
    for (; count < GREEDY; count++) {
        struct slot *slot = &greedy[count];
        *slot = (struct slot){.size = ((size_t)1 << 20) + draw_below(&lane->state, 3 << 20),
                              .alignment = 16};
        unsigned long before = atomic_load(&limited);
        slot->p = malloc(slot->size);
        if (!was_given(slot->p, before))
            break;
        accept(slot, &lane->state);
    }
    EXPECT(count < GREEDY);
    operate(lane, LIMITED_CALLS);
    if (count > 0 && threads == 1) { /* a freed block can be allocated again */
        release(&greedy[--count]);
        void *p = malloc(1 << 20);
        EXPECT(p != NULL && errno == 0);
        free(p);
    }
    while (count > 0)
        release(&greedy[--count]);
    lift_limit();
    void *more = calloc(16, 1 << 20);
    EXPECT(more != NULL && errno == 0);
    free(more);
    atomic_flag_clear(&taken);
}

/* --- children --------------------------------------------------------------------------------- */

static void fork_from(struct lane *lane);

static void *live_in_child(void *argument)
{
    operate(argument, CHILD_CALLS);
    return NULL;
}

/* The child lacks the other threads. Their unfinished operations stay unfinished, so the child does
 * not use the slots of these operations. */
static _Noreturn void go_on_in_child(struct lane *lane)
{
    alarm(HANGS_AFTER_S); /* ends a child that hangs at a lock */
    lift_limit();
    generation++;
    for (size_t i = 0; i < threads; i++)
        for (size_t k = 0; k < SLOTS; k++) {
            struct slot *slot = &lanes[i].slots[k];
            if (slot == atomic_load_explicit(&lanes[i].busy, memory_order_acquire))
                slot->p = NULL;
            else if (slot->p != NULL)
                inspect(slot);
        }
    for (size_t i = 0; i < SHARED; i++) {
        if (atomic_flag_test_and_set(&shared[i].taken))
            shared[i].slot.p = NULL;
        else if (shared[i].slot.p != NULL)
            inspect(&shared[i].slot);
        atomic_flag_clear(&shared[i].taken);
    }
    struct lane *other = &lanes[draw_below(&lane->state, threads)];
    pthread_t id;
    if (other != lane)
        EXPECT(pthread_create(&id, NULL, live_in_child, other) == 0);
    operate(lane, CHILD_CALLS);
    if (generation == 1 && draw(&lane->state) >> 62 == 0)
        fork_from(lane);
    if (other != lane)
        EXPECT(pthread_join(id, NULL) == 0);
    for (size_t k = 0; k < SLOTS; k++) {
        if (lane->slots[k].p != NULL)
            release(&lane->slots[k]);
        if (other->slots[k].p != NULL)
            release(&other->slots[k]);
    }
    for (size_t i = 0; i < SHARED; i++)
        if (shared[i].slot.p != NULL)
            release(&shared[i].slot);
    if (check != NULL)
        check();
    _exit(0);
}

static void fork_from(struct lane *lane)
{
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid == 0)
        go_on_in_child(lane);
    int status = 1;
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    atomic_fetch_add(&children, 1);
}

/* --- threads ---------------------------------------------------------------------------------- */

static pthread_barrier_t all_here;

static void *live(void *argument)
{
    struct lane *lane = argument;
    pthread_barrier_wait(&all_here); /* under a limit, pthread_create() could fail */
    errno = 0;
    for (uint64_t left = lane->calls; left > 0;) {
        uint64_t calls = left < CHECK_EVERY ? left : draw_below(&lane->state, CHECK_EVERY);
        operate(lane, calls);
        left -= calls;
        if (check != NULL)
            check();
        if (forks && draw_below(&lane->state, FORK_EVERY) < calls / 2)
            fork_from(lane);
        if (limits && draw_below(&lane->state, LIMIT_EVERY) < calls / 2)
            exhaust(lane);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    require_cairn();
    if (argc < 4)
        return 2;
    seed = strtoull(argv[1], NULL, 10);
    uint64_t operations = strtoull(argv[2], NULL, 10);
    threads = strtoull(argv[3], NULL, 10);
    for (int i = 4; i < argc; i++) {
        forks |= strcmp(argv[i], "fork") == 0;
        limits |= strcmp(argv[i], "limit") == 0;
    }
    check = (void (*)(void))dlsym(RTLD_DEFAULT, "cairn_check");
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    map = reserve(CHUNKS * sizeof *map);
    lanes = reserve(threads * sizeof *lanes);
    for (size_t i = 0; i < threads; i++) {
        lanes[i].state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + i + 1;
        lanes[i].calls = operations / threads / LIVES;
    }
    pthread_barrier_init(&all_here, NULL, (unsigned)threads);
    for (int life = 0; life < LIVES; life++) {
        pthread_t ids[64];
        for (size_t i = 1; i < threads; i++)
            EXPECT(pthread_create(&ids[i], NULL, live, &lanes[i]) == 0);
        live(&lanes[0]);
        for (size_t i = 1; i < threads; i++)
            pthread_join(ids[i], NULL);
    }
    for (size_t i = 0; i < threads; i++)
        for (size_t k = 0; k < SLOTS; k++)
            if (lanes[i].slots[k].p != NULL)
                release(&lanes[i].slots[k]);
    for (size_t i = 0; i < SHARED; i++)
        if (shared[i].slot.p != NULL)
            release(&shared[i].slot);
    printf("%llu operations, %lu children, %lu refusals, ended with %016llx\n",
           (unsigned long long)(operations / threads / LIVES * threads * LIVES), children, refused,
           (unsigned long long)lanes[0].state);
    return 0;
}
