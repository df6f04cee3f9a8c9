#include "probe/watched.h"

#include "probe/futex_lock.h"
#include "record/profile.h"

/* The table has 64 parts (shards), so that threads seldom wait for the lock of a shard. All shards
 * together hold 8,128 blocks. A full table thus fills one in 16 of the 131,072 slots of the filter.
 * So one in 16 frees of unwatched blocks passes the filter and searches the table in vain. */
enum {
    SHARDS = 1 << WATCHED_SHARDS_SHIFT,
    SHARD_BLOCKS = WATCHED_MARK - 1, /* a slot of the filter counts up to this many */
};

/* Size classes by usable bytes: one for each 16 bytes up to FINE_MOST, then four per octave. */
enum {
    FINE_MOST = 1024,
    FINE_CLASSES = FINE_MOST / 16,
    CLASSES = FINE_CLASSES + 4 * (48 - 10),
};

struct shard {
    struct futex_lock lock;
    uint32_t count;
    uint32_t halved[2]; /* number of halvings; [1] is for large blocks */
    uintptr_t blocks[SHARD_BLOCKS];
    struct watched abouts[SHARD_BLOCKS];
} __attribute__((aligned(64)));

_Alignas(4096) _Atomic uint8_t watched_filter[1 << WATCHED_FILTER_SHIFT];
static struct shard shards[SHARDS];

/* Totals of each shard. They lie side by side, because watched_live() adds them all up. */
static struct {
    _Atomic uint64_t bytes;
    _Atomic uint64_t usable;
    _Atomic uint64_t known;  /* requested bytes of blocks whose usable size is known */
    _Atomic uint64_t spread; /* sum of spread_of() over the watched blocks */
} live[SHARDS];

/* Sum of live[…].bytes. */
static _Atomic uint64_t all_bytes;

/* Totals of each size class. All are weighted sums, except `count`. */
static struct {
    _Atomic uint64_t watched;   /* usable bytes of the watched blocks */
    _Atomic uint64_t count;     /* number of sampled allocations, without weights */
    _Atomic uint64_t usable;    /* usable bytes of the sampled allocations */
    _Atomic uint64_t requested; /* requested bytes of the sampled allocations */
    _Atomic uint64_t squares;   /* requested^2 / usable of the sampled allocations */
} classes[CLASSES];

/* Number of calls of watched_sampled(). */
static _Atomic uint64_t samples;

/* Least value of every slot of the filter: 0, or 1 after watched_look_at_all(). */
static uint8_t filter_floor;

static struct shard *shard_of(const void *block)
{
    return &shards[watched_slot(block) >> (WATCHED_FILTER_SHIFT - WATCHED_SHARDS_SHIFT)];
}

/* One bit for each OS page of the filter that was written. */
static _Atomic uint64_t filter_pages;
enum { FILTER_PAGE_SHIFT = 12 };
static_assert(sizeof watched_filter >> FILTER_PAGE_SHIFT <= 64, "one bit for each page");

uint64_t watched_filter_bytes(void)
{
    uint64_t pages = atomic_load_explicit(&filter_pages, memory_order_relaxed);
    return (uint64_t)__builtin_popcountll(pages) << FILTER_PAGE_SHIFT;
}

static void note_page(const _Atomic uint8_t *slot)
{
    uint64_t page = UINT64_C(1) << ((size_t)(slot - watched_filter) >> FILTER_PAGE_SHIFT);
    if ((atomic_load_explicit(&filter_pages, memory_order_relaxed) & page) == 0)
        atomic_fetch_or_explicit(&filter_pages, page, memory_order_relaxed);
}

/* Adds `change` to the number of watched blocks in the filter slot of `block`. The caller holds the
 * shard's lock, as do the callers of all other static functions below. */
static void filter_add(uintptr_t block, int change)
{
    _Atomic uint8_t *slot = &watched_filter[watched_slot((void *)block)];
    note_page(slot);
    atomic_fetch_add_explicit(slot, (uint8_t)change, memory_order_relaxed);
}

bool watched_maybe_counted(const void *block)
{
    uint8_t now = atomic_load_explicit(&watched_filter[watched_slot(block)], memory_order_relaxed);
    return (now & (WATCHED_MARK - 1)) > filter_floor;
}

bool watched_count(const void *block)
{
    enum { COUNTED_MOST = 16 };
    uint8_t now = atomic_load_explicit(&watched_filter[watched_slot(block)], memory_order_relaxed);
    if ((now & (WATCHED_MARK - 1)) >= COUNTED_MOST) {
        watched_mark(block);
        return false;
    }
    filter_add((uintptr_t)block, 1);
    return true;
}

void watched_uncount(const void *block)
{
    filter_add((uintptr_t)block, -1);
}

void watched_mark(const void *block)
{
    _Atomic uint8_t *slot = &watched_filter[watched_slot(block)];
    if ((atomic_load_explicit(slot, memory_order_relaxed) & WATCHED_MARK) != 0)
        return;
    note_page(slot);
    atomic_fetch_or_explicit(slot, WATCHED_MARK, memory_order_relaxed);
}

void watched_unmark_all(void)
{
    for (size_t i = 0; i < COUNT_OF(watched_filter); i++)
        if ((atomic_load_explicit(&watched_filter[i], memory_order_relaxed) & WATCHED_MARK) != 0)
            atomic_fetch_and_explicit(&watched_filter[i], (uint8_t)~WATCHED_MARK,
                                      memory_order_relaxed);
}

/* Adds to a total. Totals are only written under the lock. */
static void grow(_Atomic uint64_t *sum, uint64_t by)
{
    atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + by,
                          memory_order_relaxed);
}

static size_t class_of(uint64_t usable)
{
    if (usable <= FINE_MOST)
        return usable != 0 ? (size_t)(usable - 1) / 16 : 0;
    unsigned octave = 63 - (unsigned)__builtin_clzll(usable - 1);
    size_t place = FINE_CLASSES + (octave - 10) * 4 + ((usable - 1) >> (octave - 2) & 3);
    return place < CLASSES ? place : CLASSES - 1;
}

/* Returns what a block adds to the variance of watched_live().usable, in units of SPREAD_UNIT
 * square bytes. A block with weight w is watched with probability 1 / w. So the variance of its
 * part of the sum is estimated by w (w - 1) usable^2 (Horvitz and Thompson). A block of weight 1
 * adds nothing, because all of its kind are watched. */
enum { SPREAD_UNIT = 4096 };
static uint64_t spread_of(const struct watched *about)
{
    uint64_t bytes = about->usable != 0 ? about->usable : about->bytes;
    uint64_t at_most = bytes < (UINT64_C(1) << 31) ? bytes : UINT64_C(1) << 31;
    uint64_t weight = about->weight;
    return (uint64_t)((unsigned __int128)(at_most * at_most) * (weight * (weight - 1)) /
                      SPREAD_UNIT);
}

/* Adds the bytes of a block to the shard's totals, or subtracts them if `sign` is -1. */
static void live_add(struct shard *shard, const struct watched *about, int sign)
{
    uint64_t count = (uint64_t)(about->weight * (int64_t)sign);
    grow(&live[shard - shards].bytes, about->bytes * count);
    grow(&live[shard - shards].usable, about->usable * count);
    if (about->usable != 0)
        grow(&live[shard - shards].known, about->bytes * count);
    atomic_fetch_add_explicit(&all_bytes, about->bytes * count, memory_order_relaxed);
    grow(&live[shard - shards].spread, spread_of(about) * (uint64_t)(int64_t)sign);
    atomic_fetch_add_explicit(&classes[class_of(about->usable)].watched, about->usable * count,
                              memory_order_relaxed);
}

static void drop(struct shard *shard, uint32_t i)
{
    uint32_t last = --shard->count;
    filter_add(shard->blocks[i], -1);
    live_add(shard, &shard->abouts[i], -1);
    shard->blocks[i] = shard->blocks[last];
    shard->abouts[i] = shard->abouts[last];
}

/* Returns the square root by Newton's method, because the probe is not linked with libm. From a
 * start above the root every step comes closer, until the rounding error is all that is left. */
static double square_root(double x)
{
    double root = x > 1 ? x : 1;
    if (x <= 0)
        return 0;
    for (double closer; (closer = (root + x / root) / 2) < root;)
        root = closer;
    return root;
}

static bool is_large(const struct watched *about)
{
    return about->bytes > PROFILE_MEDIUM_MAX;
}

/* Drops each block of one kind (large, or small and medium) with probability one half. Doubles the
 * weights of the blocks of this kind that stay. */
static void halve(struct shard *shard, bool large, struct random *random)
{
    for (uint32_t i = shard->count; i-- > 0;) {
        struct watched *about = &shard->abouts[i];
        if (is_large(about) != large)
            continue;
        if ((random_next(random) & 1) != 0) {
            drop(shard, i);
            continue;
        }
        live_add(shard, about, -1);
        about->weight *= 2;
        live_add(shard, about, 1);
    }
    shard->halved[large]++;
}

/* Adds a block. If the shard is full, halves the number of its small and medium blocks. If there is
 * still no room, halves the number of its large blocks until there is room. */
static void add(struct shard *shard, const void *block, struct watched watched,
                struct random *random)
{
    for (bool large = false; shard->count == SHARD_BLOCKS; large = true)
        halve(shard, large, random);
    shard->blocks[shard->count] = (uintptr_t)block;
    shard->abouts[shard->count++] = watched;
    filter_add((uintptr_t)block, 1);
    live_add(shard, &watched, 1);
}

void watched_add(const void *block, struct watched watched, struct random *random)
{
    struct shard *shard = shard_of(block);
    uint64_t blocked = futex_lock_enter(&shard->lock);
    uint32_t halved = shard->halved[is_large(&watched)];
    if ((random_next(random) & ((UINT64_C(1) << halved) - 1)) == 0) {
        watched.weight <<= halved;
        add(shard, block, watched, random);
    }
    futex_lock_leave(&shard->lock, blocked);
}

void watched_move(const void *block, struct watched watched, struct random *random)
{
    struct shard *shard = shard_of(block);
    uint64_t blocked = futex_lock_enter(&shard->lock);
    add(shard, block, watched, random);
    futex_lock_leave(&shard->lock, blocked);
}

bool watched_take(const void *block, struct watched *watched)
{
    struct shard *shard = shard_of(block);
    bool found = false;
    uint64_t blocked = futex_lock_enter(&shard->lock);
    for (uint32_t i = 0; i < shard->count && !found; i++) {
        if (shard->blocks[i] != (uintptr_t)block)
            continue;
        *watched = shard->abouts[i];
        drop(shard, i);
        found = true;
    }
    futex_lock_leave(&shard->lock, blocked);
    return found;
}

/* The variance of watched_live().usable, in square bytes. */
static double variance(void)
{
    double sum = 0;
    for (int i = 0; i < SHARDS; i++)
        sum += (double)atomic_load_explicit(&live[i].spread, memory_order_relaxed);
    return sum * SPREAD_UNIT;
}

struct watched_live watched_live(void)
{
    struct watched_live all = {.error = (uint64_t)square_root(variance())};
    for (int i = 0; i < SHARDS; i++) {
        all.bytes += atomic_load_explicit(&live[i].bytes, memory_order_relaxed);
        all.usable += atomic_load_explicit(&live[i].usable, memory_order_relaxed);
    }
    return all;
}

uint64_t watched_bytes(void)
{
    return atomic_load_explicit(&all_bytes, memory_order_relaxed);
}

/* --- the share of usable bytes that was requested --------------------------------------------- */

void watched_sampled(uint64_t bytes, uint64_t usable, uint64_t weight)
{
    size_t class = class_of(usable);
    uint64_t square = (uint64_t)((double)bytes * (double)bytes / (double)usable);
    atomic_fetch_add_explicit(&samples, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&classes[class].count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&classes[class].usable, weight * usable, memory_order_relaxed);
    atomic_fetch_add_explicit(&classes[class].requested, weight * bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&classes[class].squares, weight * square, memory_order_relaxed);
}

uint64_t watched_samples(void)
{
    return atomic_load_explicit(&samples, memory_order_relaxed);
}

/* Means over the size classes. The share of a class is the requested bytes / usable bytes of its
 * sampled allocations. The weight of a class is its usable bytes, either of the watched blocks or
 * of all sampled allocations. */
struct class_means {
    double share;   /* mean of the classes' shares */
    double between; /* variance between the classes' shares */
    double within;  /* mean of the variances between the blocks of a class */
    double noise;   /* variance of the estimate `share` */
    double usable;  /* sum of the classes' weights */
};

static struct class_means class_means(bool of_watched)
{
    struct class_means means = {.share = 0};
    double squares = 0;
    for (size_t i = 0; i < CLASSES; i++) {
        double usable = (double)atomic_load_explicit(&classes[i].usable, memory_order_relaxed);
        double part = of_watched ? (double)(int64_t)atomic_load_explicit(&classes[i].watched,
                                                                         memory_order_relaxed)
                                 : usable;
        if (usable <= 0 || part <= 0)
            continue;
        double count = (double)atomic_load_explicit(&classes[i].count, memory_order_relaxed);
        double share =
            (double)atomic_load_explicit(&classes[i].requested, memory_order_relaxed) / usable;
        double square =
            (double)atomic_load_explicit(&classes[i].squares, memory_order_relaxed) / usable;
        double variance = square > share * share ? square - share * share : 0;
        means.usable += part;
        means.share += part * share;
        squares += part * share * share;
        means.within += part * variance;
        means.noise += part * part * variance / count;
    }
    if (means.usable <= 0)
        return means;
    means.share /= means.usable;
    means.within /= means.usable;
    means.noise /= means.usable * means.usable;
    squares = squares / means.usable - means.share * means.share;
    means.between = squares > 0 ? squares : 0;
    return means;
}

static uint64_t known_bytes(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < SHARDS; i++)
        sum += atomic_load_explicit(&live[i].known, memory_order_relaxed);
    return sum;
}

struct watched_requested watched_requested(void)
{
    struct class_means all = class_means(false);
    struct class_means of_watched = class_means(true);
    struct watched_live watched = watched_live();
    double few = 1 / (1 + (double)watched_samples());
    few *= few;
    /* No allocation was sampled yet. */
    if (all.usable <= 0)
        return (struct watched_requested){.share = 1, .error = 1};
    if (of_watched.usable <= 0 || watched.usable == 0)
        return (struct watched_requested){.share = all.share,
                                          .error = square_root(all.between + all.within + few)};
    /* If all watched blocks had the same size and weight, `each` would be 1 / their number. */
    double each = variance() / ((double)watched.usable * (double)watched.usable);
    double share = (double)known_bytes() / (double)watched.usable;
    double few_watched = each / (1 + each);
    double square = (of_watched.between + of_watched.within) * each + few_watched * few_watched;
    /* If the two shares differ by more than twice the standard error, the live blocks of a class
     * are rounded up more or less than all sampled allocations of the class. */
    double apart = (share - of_watched.share) * (share - of_watched.share);
    double bias = apart > 4 * square ? apart - square : 0;
    /* A few watched blocks do not show how the live blocks are spread over the size classes. So the
     * mean over all sampled allocations counts as if it came from PRIOR_BLOCKS more watched
     * blocks. */
    enum { PRIOR_BLOCKS = 4 };
    double prior = PRIOR_BLOCKS * each / (1 + PRIOR_BLOCKS * each), own = 1 - prior;
    double between = of_watched.between > all.between ? of_watched.between : all.between;
    double square_by_class =
        between * (own * own * each + prior * prior) + of_watched.noise + bias + few;
    if (square <= square_by_class)
        return (struct watched_requested){.share = share, .error = square_root(square)};
    return (struct watched_requested){.share = own * of_watched.share + prior * all.share,
                                      .error = square_root(square_by_class)};
}

void watched_look_at_all(void)
{
    filter_floor = 1;
    atomic_store_explicit(&filter_pages,
                          UINT64_MAX >> (64 - (sizeof watched_filter >> FILTER_PAGE_SHIFT)),
                          memory_order_relaxed);
    for (size_t slot = 0; slot < COUNT_OF(watched_filter); slot++)
        atomic_store_explicit(&watched_filter[slot], 1, memory_order_relaxed);
}

/* Sums up the watched blocks of each class, after blocks of a shard were forgotten. */
static void count_watched_anew(void)
{
    for (size_t i = 0; i < CLASSES; i++)
        atomic_store_explicit(&classes[i].watched, 0, memory_order_relaxed);
    for (size_t i = 0; i < SHARDS; i++)
        for (uint32_t j = 0; j < shards[i].count; j++) {
            const struct watched *about = &shards[i].abouts[j];
            grow(&classes[class_of(about->usable)].watched, about->usable * about->weight);
        }
}

void watched_forked(void)
{
    bool lost = false;
    enum { SLOTS = 1 << (WATCHED_FILTER_SHIFT - WATCHED_SHARDS_SHIFT) };
    for (int i = 0; i < SHARDS; i++) {
        if (!futex_lock_reset(&shards[i].lock))
            continue;
        lost = true;
        atomic_fetch_sub(&all_bytes, live[i].bytes);
        shards[i] = (struct shard){.count = 0};
        atomic_store_explicit(&live[i].bytes, 0, memory_order_relaxed);
        atomic_store_explicit(&live[i].usable, 0, memory_order_relaxed);
        atomic_store_explicit(&live[i].known, 0, memory_order_relaxed);
        atomic_store_explicit(&live[i].spread, 0, memory_order_relaxed);
        for (int slot = i * SLOTS; slot < (i + 1) * SLOTS; slot++)
            atomic_store_explicit(&watched_filter[slot], filter_floor, memory_order_relaxed);
    }
    if (lost)
        count_watched_anew();
}
