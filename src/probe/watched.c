#include "probe/watched.h"

#include "probe/futex_lock.h"
#include "record/profile.h"

/* The table has 64 parts (shards), so that threads seldom wait for the lock of a shard. All shards
 * together hold 8,192 blocks. A full table thus fills one in 16 of the 131,072 slots of the filter.
 * So one in 16 frees of unwatched blocks passes the filter and searches the table in vain. */
enum {
    SHARDS = 1 << WATCHED_SHARDS_SHIFT,
    SHARD_BLOCKS = 128,
};

struct shard {
    struct futex_lock lock;
    uint32_t count;
    uint32_t halved[2]; /* number of halvings; [1] is for large blocks */
    uintptr_t blocks[SHARD_BLOCKS];
    struct watched abouts[SHARD_BLOCKS];
} __attribute__((aligned(64)));

_Atomic uint8_t watched_filter[1 << WATCHED_FILTER_SHIFT];
static struct shard shards[SHARDS];

/* Totals of each shard. They lie side by side, because watched_live() adds them all up. */
static struct {
    _Atomic uint64_t bytes;
    _Atomic uint64_t usable;
} live[SHARDS];

/* Least value of every slot of the filter: 1 after watched_look_at_all(). */
static uint8_t filter_floor;

static struct shard *shard_of(const void *block)
{
    return &shards[watched_slot(block) >> (WATCHED_FILTER_SHIFT - WATCHED_SHARDS_SHIFT)];
}

/* Adds `change` to the number of watched blocks in the filter slot of `block`. The caller holds the
 * shard's lock, as do the callers of all other static functions below. */
static void filter_add(uintptr_t block, int change)
{
    _Atomic uint8_t *slot = &watched_filter[watched_slot((void *)block)];
    atomic_store_explicit(slot,
                          (uint8_t)(atomic_load_explicit(slot, memory_order_relaxed) + change),
                          memory_order_relaxed);
}

/* Adds to a total. Totals are only written under the lock. */
static void grow(_Atomic uint64_t *sum, uint64_t by)
{
    atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + by,
                          memory_order_relaxed);
}

/* Adds `count` times the bytes of a block to the shard's totals. A negative count subtracts. */
static void live_add(struct shard *shard, const struct watched *about, int64_t count)
{
    grow(&live[shard - shards].bytes, about->bytes * (uint64_t)count);
    grow(&live[shard - shards].usable, about->usable * (uint64_t)count);
}

static void drop(struct shard *shard, uint32_t i)
{
    uint32_t last = --shard->count;
    filter_add(shard->blocks[i], -1);
    live_add(shard, &shard->abouts[i], -(int64_t)shard->abouts[i].weight);
    shard->blocks[i] = shard->blocks[last];
    shard->abouts[i] = shard->abouts[last];
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
        live_add(shard, about, about->weight);
        about->weight *= 2;
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
    live_add(shard, &watched, watched.weight);
}

void watched_add(const void *block, struct watched watched, struct random *random)
{
    struct shard *shard = shard_of(block);
    futex_lock_take(&shard->lock);
    uint32_t halved = shard->halved[is_large(&watched)];
    if ((random_next(random) & ((UINT64_C(1) << halved) - 1)) == 0) {
        watched.weight <<= halved;
        add(shard, block, watched, random);
    }
    futex_lock_drop(&shard->lock);
}

void watched_move(const void *block, struct watched watched, struct random *random)
{
    struct shard *shard = shard_of(block);
    futex_lock_take(&shard->lock);
    add(shard, block, watched, random);
    futex_lock_drop(&shard->lock);
}

bool watched_take(const void *block, struct watched *watched)
{
    struct shard *shard = shard_of(block);
    bool found = false;
    futex_lock_take(&shard->lock);
    for (uint32_t i = 0; i < shard->count && !found; i++) {
        if (shard->blocks[i] != (uintptr_t)block)
            continue;
        *watched = shard->abouts[i];
        drop(shard, i);
        found = true;
    }
    futex_lock_drop(&shard->lock);
    return found;
}

struct watched_live watched_live(void)
{
    struct watched_live all = {.bytes = 0};
    for (int i = 0; i < SHARDS; i++) {
        all.bytes += atomic_load_explicit(&live[i].bytes, memory_order_relaxed);
        all.usable += atomic_load_explicit(&live[i].usable, memory_order_relaxed);
    }
    return all;
}

void watched_look_at_all(void)
{
    filter_floor = 1;
    for (size_t slot = 0; slot < COUNT_OF(watched_filter); slot++)
        atomic_store_explicit(&watched_filter[slot], 1, memory_order_relaxed);
}

void watched_forked(void)
{
    enum { SLOTS = 1 << (WATCHED_FILTER_SHIFT - WATCHED_SHARDS_SHIFT) };
    for (int i = 0; i < SHARDS; i++) {
        if (!futex_lock_reset(&shards[i].lock))
            continue;
        shards[i] = (struct shard){.count = 0};
        atomic_store_explicit(&live[i].bytes, 0, memory_order_relaxed);
        atomic_store_explicit(&live[i].usable, 0, memory_order_relaxed);
        for (int slot = i * SLOTS; slot < (i + 1) * SLOTS; slot++)
            atomic_store_explicit(&watched_filter[slot], filter_floor, memory_order_relaxed);
    }
}
