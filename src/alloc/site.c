#include "alloc/site.h"

#include "alloc/big_cache.h"
#include "alloc/broken.h"
#include "alloc/guarded_run.h"
#include "base/clock.h"
#include "os/lock.h"

#include <string.h>

enum {
    HASH_BITS = 10,
    DEPTHS = 256, /* stack depths, in units of 16 bytes */
    OTHERS = SITE_SLOTS + 1,
    TABLE_BYTES = OTHERS * sizeof(struct site),
    TABLE_SLICES = (TABLE_BYTES + SLICE_BYTES - 1) / SLICE_BYTES,
};
_Static_assert(SITE_SLOTS == 1 << HASH_BITS, "every hash is the number of a row");
_Static_assert(SITE_MOST < SITE_SLOTS, "every search ends at an empty row");

/* The field `site` of a block's record: number of the row << DOUBLING_BITS | log2 of the weight.
 *
 * The field shares its bytes with the `inverse` of a slab. The last assertion makes sure that an
 * inverse which a slab left behind is not a valid row number. */
enum { DOUBLING_BITS = 4 };
_Static_assert(SITE_DOUBLINGS < 1 << DOUBLING_BITS, "the number of doublings fits its bits");
_Static_assert(UINT32_MAX / SIZE_CLASS_BYTES_MAX + 1 > (OTHERS + 1) << DOUBLING_BITS,
               "an inverse that a slab left is not a row number");

/* The table of sites. Its rows have the numbers 1 to OTHERS. Row number n is site_table[n - 1]. The
 * last row, number OTHERS, counts the blocks of all sites without their own row. */
struct site *site_table;
bool site_matters;

static struct lock lock;
static uint32_t filled; /* rows with a site */

/* --- the table; the caller holds the lock ----------------------------------------------------- */

static uint32_t hash(uintptr_t address, uint32_t slices, uint32_t depth)
{
    uint64_t mixed = address ^ (uint64_t)slices << 40 ^ (uint64_t)depth << 32;
    return (uint32_t)(mixed * UINT64_C(0x9e3779b97f4a7c15) >> (64 - HASH_BITS));
}

/* Returns the row of the site, or the empty row where it would be added. */
static uint32_t find(uintptr_t address, uint32_t slices, uint32_t depth)
{
    uint32_t at = hash(address, slices, depth);
    for (; site_table[at].address != 0; at = (at + 1) % SITE_SLOTS)
        if (site_table[at].address == address && site_table[at].slices == slices &&
            site_table[at].depth == depth)
            break;
    return at;
}

/* Returns the number of the row that a block counts for. Adds the site if it is new. */
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

/* Returns the index in lives[] at which a block with this lifetime is counted. */
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

/* Returns the row that counts the block, or NULL if the block is not counted. If it is not counted,
 * the field `site` of its record is 0 or a value that a slab left behind. */
static struct site *site_of(const struct slab *slab)
{
    uint32_t number = slab->site >> DOUBLING_BITS;
    return number - 1 < OTHERS ? &site_table[number - 1] : NULL;
}

/* Returns how many blocks a counted block stands for. */
static uint64_t weight_of(const struct slab *slab)
{
    return UINT64_C(1) << slab->site % (1 << DOUBLING_BITS);
}

struct heap *site_keeper(const struct slab *slab)
{
    bool is_counted = site_is_counted() && site_of(slab) != NULL;
    return is_counted || big_cache_is_on() ? (struct heap *)&site_table : NULL;
}

/* Returns log2 of the weight of the next counted block, after `counted` counted blocks. */
static uint32_t doublings(uint32_t counted)
{
    uint32_t times = counted < SITE_ALL ? 0 : 1 + (counted - SITE_ALL) / SITE_EACH;
    return times < SITE_DOUBLINGS ? times : SITE_DOUBLINGS;
}

/* Counts one block of the sequence and returns log2 of its weight. The next sample is drawn at
 * random from the next group of blocks, which begins where the group of this block ends. */
static uint32_t advance(struct site_turn *turn, uint64_t now_ns)
{
    uint32_t doubled = doublings(turn->counted);
    if (turn->counted == 0) /* every heap gets its own seed */
        turn->random = random_of((uintptr_t)turn ^ now_ns << 32);
    if (turn->counted < UINT32_MAX)
        turn->counted++;
    uint32_t others = (UINT32_C(1) << doublings(turn->counted)) - 1;
    uint32_t before = (uint32_t)random_below(&turn->random, (uint64_t)others + 1);
    turn->left = turn->behind + before;
    turn->behind = others - before;
    return doubled;
}

/* --- blocks come and go ----------------------------------------------------------------------- */

bool site_begin(void)
{
    bool zero;
    if (site_is_counted())
        return true;
    size_t index = guarded_run_for_us(TABLE_SLICES, &zero);
    if (index == 0)
        return false;
    struct site *table = region_address(index);
    if (!zero)
        memset(table, 0, TABLE_BYTES);
    for (size_t i = 0; i < TABLE_SLICES; i++)
        atomic_store_explicit(&slab_at(index + i)->kind, RUN_OWN, memory_order_relaxed);
    site_table = table;
    site_matters = true;
    return true;
}

void site_take(struct slab *slab, size_t slices, const void *caller, bool hit,
               struct site_turn *turn)
{
    uint32_t depth = (uint32_t)((uintptr_t)__builtin_frame_address(0) / 16 % DEPTHS);
    slab->born_ns = clock_now_ns();
    uint32_t doubled = turn != NULL ? advance(turn, slab->born_ns) : 0;
    lock_take(&lock);
    slab->site = number_of((uintptr_t)caller, (uint32_t)slices, depth) << DOUBLING_BITS | doubled;
    struct site *site = site_of(slab);
    uint64_t blocks = weight_of(slab);
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
    uint64_t blocks = weight_of(slab);
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
    /* If the block has shrunk, the difference wraps around. The addition wraps around, too, so that
     * the sum is right. */
    site->live_bytes += weight_of(slab) * (bytes_of(slab) - (before << SLICE_SHIFT));
    lock_drop(&lock);
}

/* --- for reports ------------------------------------------------------------------------------ */

void site_lock(void)
{
    lock_take(&lock);
}

bool site_has_taken_lock(void)
{
    return lock_is_taken(&lock);
}

void site_unlock(void)
{
    lock_drop(&lock);
}

static bool comes_before(const struct site *one, const struct site *other)
{
    return one->bytes != other->bytes ? one->bytes > other->bytes : one < other;
}

/* Searches the whole table for each site: a sorted order would need memory, and a report is not
 * urgent. */
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
