#include "alloc/chunk.h"

#include "alloc/broken.h"
#include "os/os.h"

enum {
    CHANGED = 1, /* the list of changed chunks */
    DENSITIES = 4,

    /* List 4 * n + d holds the chunks whose longest free run has n slices, 1 to 127. A low d means
     * a densely used chunk. n is never 0, so list 1 is free for the changed chunks. */
    LISTS = CHUNK_SLICES * DENSITIES,
    LIST_WORDS = LISTS / 64,
};

static uint32_t lists[LISTS];             /* first chunk; valid if the list's bit is set */
static uint64_t lists_filled[LIST_WORDS]; /* a bit per list */

static bool is_filled(unsigned list)
{
    return lists_filled[list / 64] >> list % 64 & 1;
}

/* Takes a chunk off its list. */
static void leave(struct chunk *chunk)
{
    unsigned list = chunk->list;
    if (chunk->next != CHUNK_NONE)
        chunk_of(chunk->next)->prev = chunk->prev;
    if (chunk->prev != CHUNK_NONE)
        chunk_of(chunk->prev)->next = chunk->next;
    else if (chunk->next != CHUNK_NONE)
        lists[list] = chunk->next;
    else
        lists_filled[list / 64] &= ~(UINT64_C(1) << list % 64);
}

/* Puts a chunk on a list, as the first. */
static void join(size_t number, unsigned list)
{
    struct chunk *chunk = chunk_of(number);
    bool filled = is_filled(list);
    chunk->list = (uint16_t)list;
    chunk->prev = CHUNK_NONE;
    chunk->next = filled ? lists[list] : CHUNK_NONE;
    if (filled)
        chunk_of(chunk->next)->prev = (uint32_t)number;
    lists[list] = (uint32_t)number;
    lists_filled[list / 64] |= UINT64_C(1) << list % 64;
}

static unsigned longest_of(const struct chunk *chunk)
{
    return chunk->used_count == CHUNK_SLICES ? 0 : bitmap_longest(~bitmap_load(&chunk->used));
}

/* Returns the list on which a chunk belongs, or 0 if it is full or empty. */
static unsigned list_of(const struct chunk *chunk, unsigned longest)
{
    unsigned density = chunk->used_count * DENSITIES / (CHUNK_SLICES + 1u);
    bool is_partial = longest > 0 && longest < CHUNK_SLICES;
    return is_partial ? longest * DENSITIES + (DENSITIES - 1 - density) : 0;
}

/* Moves a changed chunk to the list where it belongs. */
static void settle(size_t number)
{
    struct chunk *chunk = chunk_of(number);
    unsigned longest = chunk_exactly(number);
    unsigned list = list_of(chunk, longest);
    leave(chunk);
    chunk->list = 0;
    if (list != 0)
        join(number, list);
}

/* Returns the numbers of free slices of a chunk. The numbers at its start and its end are exact.
 * The length of the longest run is an upper bound. */
static struct free_slices free_of(const struct chunk *chunk)
{
    if (chunk->used_count == CHUNK_SLICES)
        return (struct free_slices){0};
    if (chunk->used_count == 0)
        return (struct free_slices){CHUNK_SLICES, CHUNK_SLICES, CHUNK_SLICES, 0};
    bitmap_wide used = bitmap_load(&chunk->used);
    unsigned at_start = bitmap_lowest(used);
    unsigned at_end = CHUNK_SLICES - 1 - bitmap_highest(used);
    /* This is an upper bound. It assumes that the free slices which are neither at the start nor at
     * the end lie side by side. */
    unsigned longest = CHUNK_SLICES - chunk->used_count - at_start - at_end;
    if (longest < at_start)
        longest = at_start;
    if (longest < at_end)
        longest = at_end;
    return (struct free_slices){(uint8_t)at_start, (uint8_t)longest, (uint8_t)at_end, 0};
}

/* Puts a chunk on the list of changed chunks. Returns its free slices. */
static struct free_slices change(size_t number)
{
    struct chunk *chunk = chunk_of(number);
    if (chunk->list != CHANGED) {
        if (chunk->list != 0)
            leave(chunk);
        join(number, CHANGED);
    }
    return free_of(chunk);
}

void chunk_took(size_t number)
{
    unsigned bound = free_map.chunks[number].longest;
    struct free_slices left = change(number);
    if (left.longest > bound)
        left.longest = (uint8_t)bound;
    free_map_take(number, left);
}

void chunk_gave(size_t number)
{
    free_map_put(number, change(number));
}

unsigned chunk_exactly(size_t number)
{
    struct free_slices is = free_map.chunks[number];
    is.longest = (uint8_t)longest_of(chunk_of(number));
    free_map_take(number, is);
    return is.longest;
}

size_t chunk_find(size_t slices)
{
    while (is_filled(CHANGED))
        settle(lists[CHANGED]);
    unsigned from = (unsigned)slices * DENSITIES;
    for (unsigned word = from / 64; word < LIST_WORDS; word++) {
        uint64_t filled = lists_filled[word];
        if (word == from / 64)
            filled &= ~UINT64_C(0) << from % 64;
        if (filled != 0)
            return lists[word * 64 + (unsigned)__builtin_ctzll(filled)];
    }
    return CHUNK_NONE;
}

bitmap_wide chunk_whole_pages(bitmap_wide slices)
{
    if (LIKELY(os_page_bytes() <= SLICE_BYTES))
        return slices;
    unsigned count = (unsigned)(os_page_bytes() / SLICE_BYTES);
    uint64_t page = (UINT64_C(1) << count) - 1;
    uint64_t every = UINT64_MAX / page; /* the lowest bit of each page */
    return (bitmap_starts(slices, count) & ((bitmap_wide)every << 64 | every)) * page;
}

void chunk_want_small(size_t number)
{
    struct chunk *chunk = chunk_of(number);
    chunk->small = os_want_small_pages(region_address(number * CHUNK_SLICES), CHUNK_BYTES);
    chunk->huge = !chunk->small;
}

void chunk_check(size_t number)
{
    const struct chunk *chunk = chunk_of(number);
    struct free_slices recorded = free_map.chunks[number];
    struct free_slices actual = free_of(chunk);
    unsigned longest = longest_of(chunk);
    if (chunk->used_count == 0 && recorded.longest == 0) { /* skipped by region_grow() */
        CHECK_THAT(chunk->list == 0);
        return;
    }
    CHECK_THAT(chunk->used_count == bitmap_count(bitmap_load(&chunk->used)));
    CHECK_THAT(recorded.at_start == actual.at_start && recorded.at_end == actual.at_end &&
               recorded.longest >= longest);
    CHECK_THAT(chunk->list == CHANGED || chunk->list == list_of(chunk, longest));
}
