#include "alloc/site.h"

#include "alloc/broken.h"
#include "alloc/page_heap.h"
#include "base/clock.h"
#include "os/lock.h"

#include <string.h>

enum {
    HASH_BITS = 10,
    DEPTHS = 256, /* of 16 bytes each */
    OTHERS = SITE_SLOTS + 1,
    TABLE_BYTES = OTHERS * sizeof(struct site),
    TABLE_SLICES = (TABLE_BYTES + SLICE_BYTES - 1) / SLICE_BYTES,
};
_Static_assert(SITE_SLOTS == 1 << HASH_BITS, "a hash is a row");
_Static_assert(SITE_MOST < SITE_SLOTS, "a search ends at an empty row");

/* What a block's record says: the number of its row, and how often what it stands for was doubled. */
enum { DOUBLING_BITS = 4 };
_Static_assert(SITE_DOUBLINGS < 1 << DOUBLING_BITS, "they fit");
_Static_assert(UINT32_MAX / SIZE_CLASS_BYTES_MAX + 1 > (OTHERS + 1) << DOUBLING_BITS,
               "a slab leaves no row's number");

struct site *site_table; /* OTHERS rows; row n is number n + 1 in a record */

static struct lock lock;
static uint32_t filled;

/* --- the table; under the lock ------------------------------------------------------------------------------------ */

static uint32_t hash(uintptr_t address, uint32_t slices, uint32_t depth)
{
    uint64_t mixed = address ^ (uint64_t)slices << 40 ^ (uint64_t)depth << 32;
    return (uint32_t)(mixed * UINT64_C(0x9e3779b97f4a7c15) >> (64 - HASH_BITS));
}

/* Its row, or the empty one that would be it. */
static uint32_t find(uintptr_t address, uint32_t slices, uint32_t depth)
{
    uint32_t at = hash(address, slices, depth);
    for (; site_table[at].address != 0; at = (at + 1) % SITE_SLOTS)
        if (site_table[at].address == address && site_table[at].slices == slices &&
            site_table[at].depth == depth)
            break;
    return at;
}

/* The number of the row that the block counts for. */
static uint32_t number_of(uintptr_t address, uint32_t slices, uint32_t depth)
{
    if (address == 0)
        return OTHERS;
    uint32_t at = find(address, slices, depth);
    if (site_table[at].address == 0) {
        if (filled == SITE_MOST)
            return OTHERS;
        filled++;
        site_table[at].address = address;
        site_table[at].slices = slices;
        site_table[at].depth = depth;
    }
    return at + 1;
}

static unsigned life_of(uint64_t ns)
{
    unsigned bits = ns == 0 ? 0 : 64 - (unsigned)__builtin_clzll(ns);
    unsigned life = bits <= SITE_LIFE_FIRST ? 0 : (bits - SITE_LIFE_FIRST - 1) / SITE_LIFE_STEP + 1;
    return life < SITE_LIVES ? life : SITE_LIVES - 1;
}

static size_t bytes_of(const struct slab *slab)
{
    return (size_t)slab->slices << SLICE_SHIFT;
}

/* NULL: none. A record that nobody has counted holds 0 or what a slab left. */
static struct site *site_of(const struct slab *slab)
{
    uint32_t number = slab->site >> DOUBLING_BITS;
    return number - 1 < OTHERS ? &site_table[number - 1] : NULL;
}

/* For so many blocks one counts that a site counts. */
static uint64_t stands_for(const struct slab *slab)
{
    return UINT64_C(1) << slab->site % (1 << DOUBLING_BITS);
}

struct heap *site_keeper(const struct slab *slab)
{
    return site_is_counted() && site_of(slab) != NULL ? (struct heap *)&site_table
                                                      : NULL; /* site_keeps() */
}

/* How often what a block stands for was doubled, after so many were counted. */
static uint32_t doublings(uint32_t counted)
{
    uint32_t times = counted < SITE_ALL ? 0 : 1 + (counted - SITE_ALL) / SITE_EACH;
    return times < SITE_DOUBLINGS ? times : SITE_DOUBLINGS;
}

/* One is counted: how often what it stands for was doubled. The next is anywhere among those that it will stand for, behind
 * those of this one. */
static uint32_t go_on(struct site_turn *turn, uint64_t now_ns)
{
    uint32_t doubled = doublings(turn->counted);
    if (turn->counted == 0) /* no two heaps draw the same */
        turn->random = random_of((uintptr_t)turn ^ now_ns << 32);
    if (turn->counted < UINT32_MAX)
        turn->counted++;
    uint32_t others = (UINT32_C(1) << doublings(turn->counted)) - 1;
    uint32_t before = (uint32_t)random_below(&turn->random, (uint64_t)others + 1);
    turn->left = turn->behind + before;
    turn->behind = others - before;
    return doubled;
}

/* --- blocks come and go ------------------------------------------------------------------------------------------- */

bool site_begin(void)
{
    bool zero;
    if (site_is_counted())
        return true;
    size_t index = page_heap_allocate(TABLE_SLICES, 0, &zero);
    if (index == 0)
        return false;
    struct site *table = region_address(index);
    if (!zero)
        memset(table, 0, TABLE_BYTES);
    for (size_t i = 0; i < TABLE_SLICES; i++)
        atomic_store_explicit(&slab_at(index + i)->kind, RUN_OWN, memory_order_relaxed);
    site_table = table;
    return true;
}

void site_take(struct slab *slab, size_t slices, const void *caller, bool hit,
               struct site_turn *turn)
{
    uint32_t depth = (uint32_t)((uintptr_t)__builtin_frame_address(0) / 16 % DEPTHS);
    slab->born_ns = clock_now_ns();
    uint32_t doubled = turn != NULL ? go_on(turn, slab->born_ns) : 0;
    lock_take(&lock);
    slab->site = number_of((uintptr_t)caller, (uint32_t)slices, depth) << DOUBLING_BITS | doubled;
    struct site *site = site_of(slab);
    uint64_t blocks = stands_for(slab);
    site->counted++;
    site->variance += blocks * (blocks - 1);
    site->blocks += blocks;
    site->bytes += blocks * bytes_of(slab);
    site->live_bytes += blocks * bytes_of(slab);
    site->hits += hit ? blocks : 0;
    lock_drop(&lock);
    if (atomic_load_explicit(&slab->owner, memory_order_relaxed) == NULL)
        atomic_store_explicit(&slab->owner, site_keeper(slab), memory_order_release);
}

void site_give_back(struct slab *slab)
{
    struct site *site = site_of(slab);
    if (site == NULL)
        return;
    unsigned life = life_of(clock_now_ns() - slab->born_ns);
    uint64_t blocks = stands_for(slab);
    if (site_keeps(atomic_load_explicit(&slab->owner, memory_order_relaxed)))
        atomic_store_explicit(&slab->owner, NULL, memory_order_relaxed);
    slab->site = 0;
    lock_take(&lock);
    site->freed += blocks;
    site->live_bytes -= blocks * bytes_of(slab);
    site->lives[life] += blocks;
    lock_drop(&lock);
}

void site_resize(struct slab *slab, size_t before)
{
    struct site *site = site_of(slab);
    if (site == NULL)
        return;
    lock_take(&lock);
    site->live_bytes +=
        stands_for(slab) * (bytes_of(slab) - (before << SLICE_SHIFT)); /* less, where that wraps */
    lock_drop(&lock);
}

/* --- for who tells ------------------------------------------------------------------------------------------------ */

void site_lock(void)
{
    lock_take(&lock);
}

void site_unlock(void)
{
    lock_drop(&lock);
}

static bool comes_before(const struct site *one, const struct site *other)
{
    return one->bytes != other->bytes ? one->bytes > other->bytes : one < other;
}

/* Looked for anew each time: there is no memory for an order, and nobody is in a hurry. */
const struct site *site_next(const struct site *before)
{
    const struct site *next = NULL;
    for (size_t i = 0; i < SITE_SLOTS; i++)
        if (site_table[i].address != 0 &&
            (before == NULL || comes_before(before, &site_table[i])) &&
            (next == NULL || comes_before(&site_table[i], next)))
            next = &site_table[i];
    return next;
}

const struct site *site_others(void)
{
    return &site_table[OTHERS - 1];
}

uint32_t site_count(void)
{
    return filled;
}

bool site_is_within(uintptr_t begin, uintptr_t end)
{
    bool found = false;
    lock_take(&lock);
    for (size_t i = 0; i < SITE_SLOTS && !found; i++)
        found = site_table[i].address > begin && site_table[i].address <= end;
    lock_drop(&lock);
    return found;
}

static void check_row(const struct site *site)
{
    uint64_t ended = 0;
    for (unsigned i = 0; i < SITE_LIVES; i++)
        ended += site->lives[i];
    CHECK_THAT(site->hits <= site->blocks && site->freed <= site->blocks &&
               site->counted <= site->blocks);
    CHECK_THAT((site->variance == 0) == (site->counted == site->blocks));
    CHECK_THAT(ended == site->freed);
    CHECK_THAT((site->live_bytes == 0) == (site->freed == site->blocks));
}

void site_check(void)
{
    if (!site_is_counted())
        return;
    lock_take(&lock);
    uint32_t rows = 0;
    for (uint32_t i = 0; i < SITE_SLOTS; i++) {
        const struct site *site = &site_table[i];
        if (site->address == 0) {
            CHECK_THAT(site->blocks == 0);
            continue;
        }
        rows++;
        CHECK_THAT(find(site->address, site->slices, site->depth) == i);
        check_row(site);
    }
    check_row(site_others());
    CHECK_THAT(rows == filled && rows <= SITE_MOST);
    lock_drop(&lock);
}
