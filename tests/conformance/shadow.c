/* Random calls held against a shadow: contents, overlap, alignment, usable size, errno.
 *
 *     shadow SEED OPERATIONS THREADS
 *
 * Each thread has blocks of its own and now and then swaps some for those of others, so that blocks are freed and
 * resized where they were not allocated; threads end and others go on with what they left. The first difference is one
 * line with the seed, and abort(). With one thread a seed gives the same calls every time.
 *
 * Overlap is seen by a map of all 16 bytes that belong to a live block, contents by a pattern of the block's own.
 */
#include "conformance.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum {
    SLOTS = 1024, /* of a thread */
    SHARED = 512,
    LIVES = 8,       /* threads that follow one another on the same blocks */
    EDGE = 2048,     /* of larger blocks only the ends are filled */
    CHUNK = 1 << 16, /* bytes that one entry of the map knows of */
    CHUNKS = 1 << 16,
    WORDS = CHUNK / 16 / 64,
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
    uint64_t calls; /* that one life makes */
    struct slot slots[SLOTS];
};

static uint64_t seed;
static struct shared shared[SHARED];
static void (*check)(void);

#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "seed %llu: line %d: not true: %s\n", (unsigned long long)seed, __LINE__,        \
                    #condition);                                                                             \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

/* --- the map: open addressing from a chunk's address to bits, of which entries are never taken out --------------- */

static struct {
    _Atomic uintptr_t address; /* of the chunk, plus 1 */
    _Atomic(_Atomic uint64_t *) bits;
} *map;

static _Atomic uint64_t *bits_of(uintptr_t chunk)
{
    for (size_t i = chunk / CHUNK * UINT64_C(0x9e3779b97f4a7c15) >> 48;; i = (i + 1) % CHUNKS) {
        uintptr_t there = 0;
        if (!atomic_compare_exchange_strong(&map[i].address, &there, chunk + 1) && there != chunk + 1)
            continue;
        _Atomic uint64_t *bits = atomic_load(&map[i].bits);
        if (bits == NULL) {
            size_t bytes = WORDS * sizeof *bits;
            _Atomic uint64_t *fresh =
                mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            EXPECT(fresh != MAP_FAILED);
            if (atomic_compare_exchange_strong(&map[i].bits, &bits, fresh))
                bits = fresh;
            else
                munmap(fresh, bytes);
        }
        return bits;
    }
}

/* Turns the bits of a block over; every one must have been the other way. */
static void turn(uintptr_t from, size_t bytes, bool to)
{
    for (uintptr_t end = from + bytes; from < end;) {
        _Atomic uint64_t *bits = bits_of(from / CHUNK * CHUNK);
        do {
            unsigned first = (unsigned)(from / 16 % 64);
            uint64_t count = (end - from + 15) / 16;
            uint64_t mask =
                count + first >= 64 ? ~UINT64_C(0) << first : ((UINT64_C(1) << count) - 1) << first;
            _Atomic uint64_t *word = &bits[from % CHUNK / 16 / 64];
            if (to)
                EXPECT((atomic_fetch_or(word, mask) & mask) == 0); /* a block that overlaps another */
            else
                EXPECT((atomic_fetch_and(word, ~mask) & mask) == mask);
            from = (from / 1024 + 1) * 1024;
        } while (from < end && from % CHUNK != 0);
    }
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

/* `from` is a multiple of 8, and so is the block's address. */
static void fill_range(unsigned char *p, size_t from, size_t to, uint64_t pattern)
{
    size_t at = from;
    for (; at + 8 <= to; at += 8)
        memcpy(p + at, &pattern, 8);
    memcpy(p + at, &pattern, to - at);
}

static bool has_range(const unsigned char *p, size_t from, size_t to, uint64_t pattern)
{
    uint64_t differs = 0;
    size_t at = from;
    for (; at + 8 <= to; at += 8) {
        uint64_t word;
        memcpy(&word, p + at, 8);
        differs |= word ^ pattern;
    }
    return differs == 0 && memcmp(p + at, &pattern, to - at) == 0;
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

/* As far as `size`, which may be less than the block has. */
static bool has(const unsigned char *p, size_t filled, size_t size, uint64_t pattern)
{
    if (filled <= 2 * EDGE)
        return has_range(p, 0, size < filled ? size : filled, pattern);
    return has_range(p, 0, size < EDGE ? size : EDGE, pattern) &&
           (size < filled || has_range(p, (filled - EDGE) & ~(size_t)7, filled, pattern));
}

static void accept(struct slot *slot, uint64_t *state)
{
    EXPECT(slot->p != NULL);
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

/* Mostly small, now and then up to 4 MiB. */
static size_t any_size(uint64_t *state)
{
    uint64_t kind = draw(state) >> 56;
    if (kind < 180)
        return draw_below(state, 512);
    if (kind < 235)
        return draw_below(state, 8192);
    if (kind < 252)
        return draw_below(state, 1 << 17);
    return kind == 255 ? draw_below(state, 1 << 22) : draw_below(state, 1 << 19);
}

static void allocate(struct slot *slot, uint64_t *state)
{
    *slot = (struct slot){.size = any_size(state), .alignment = 16};
    void *p = NULL;
    int before = errno;
    switch (draw(state) >> 60) {
    default:
        slot->p = malloc(slot->size);
        break;
    case 1:
    case 2:
        slot->p = calloc(1, slot->size);
        EXPECT(slot->p != NULL && has(slot->p, slot->size, slot->size, 0));
        break;
    case 3:
        slot->p = realloc(NULL, slot->size);
        break;
    case 4:
        slot->alignment = (size_t)16 << draw_below(state, 9);
        slot->p = aligned_alloc(slot->alignment, slot->size);
        break;
    case 5:
        slot->alignment = (size_t)8 << draw_below(state, draw(state) >> 60 == 0 ? 16 : 10);
        EXPECT(posix_memalign(&p, slot->alignment, slot->size) == 0);
        slot->p = p;
        break;
    case 6:
        slot->p = reallocarray(NULL, slot->size, 1);
        break;
    }
    EXPECT(errno == before);
    accept(slot, state);
}

static void release(struct slot *slot)
{
    inspect(slot);
    turn((uintptr_t)slot->p, slot->usable, false);
    int before = errno;
    free(slot->p);
    EXPECT(errno == before);
    slot->p = NULL;
}

static void resize(struct slot *slot, uint64_t *state)
{
    inspect(slot);
    size_t size = any_size(state);
    if (draw(state) >> 63)
        size = slot->size + draw_below(state, slot->size / 4 + 64);
    turn((uintptr_t)slot->p, slot->usable, false);
    int before = errno;
    void *p = realloc(slot->p, size);
    EXPECT(errno == before);
    if (size == 0) {
        EXPECT(p == NULL);
        slot->p = NULL;
        return;
    }
    EXPECT(p != NULL && has(p, slot->size, size, slot->pattern));
    slot->p = p;
    slot->size = size;
    slot->alignment = 16;
    accept(slot, state);
}

static void refuse(struct slot *slot, uint64_t *state)
{
    size_t huge = PTRDIFF_MAX - draw_below(state, 4096);
    int before = errno;
    errno = 0;
    EXPECT(malloc(huge) == NULL && errno == ENOMEM);
    errno = 0;
    EXPECT(realloc(slot->p, huge) == NULL && errno == ENOMEM);
    errno = before;
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

static void *live(void *argument)
{
    struct lane *lane = argument;
    for (uint64_t call = 0; call < lane->calls; call++) {
        struct slot *slot = &lane->slots[draw_below(&lane->state, SLOTS)];
        unsigned kind = (unsigned)(draw(&lane->state) >> 58);
        if (slot->p == NULL)
            allocate(slot, &lane->state);
        else if (kind < 8)
            resize(slot, &lane->state);
        else if (kind == 8)
            refuse(slot, &lane->state);
        else if (kind < 12)
            swap(slot, &lane->state);
        else
            release(slot);
        if (check != NULL && call % 50000 == 0)
            check();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    require_cairn();
    if (argc != 4)
        return 2;
    seed = strtoull(argv[1], NULL, 10);
    uint64_t operations = strtoull(argv[2], NULL, 10);
    size_t threads = strtoull(argv[3], NULL, 10);
    check = (void (*)(void))dlsym(RTLD_DEFAULT, "cairn_check");
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    map = mmap(NULL, CHUNKS * sizeof *map, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct lane *lanes =
        mmap(NULL, threads * sizeof *lanes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(map != MAP_FAILED && lanes != MAP_FAILED);
    for (size_t i = 0; i < threads; i++) {
        lanes[i].state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + i + 1;
        lanes[i].calls = operations / threads / LIVES;
    }
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
    return 0;
}
