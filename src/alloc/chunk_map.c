#include "alloc/chunk_map.h"

#include "alloc/broken.h"

enum { WORD = 64, WORDS = CHUNK_MAP_CHUNKS / WORD };

static uint64_t map[WORDS]; /* 16 KiB, of which a page is touched for every 64 GiB */
static size_t lowest;       /* a word */
static size_t end;          /* no bit is set in this word or a later one */

/* The bits of a word from `first` on, as far as `count` goes; it is lessened by them. */
static uint64_t bits_of(unsigned first, size_t *count)
{
    unsigned here = *count < WORD - first ? (unsigned)*count : WORD - first;
    *count -= here;
    return ~UINT64_C(0) >> (WORD - here) << first;
}

void chunk_map_put(size_t first, size_t count)
{
    size_t word = first / WORD;
    if (word < lowest)
        lowest = word;
    map[word] |= bits_of((unsigned)(first % WORD), &count);
    while (count > 0)
        map[++word] |= bits_of(0, &count);
    if (word >= end)
        end = word + 1;
}

void chunk_map_take(size_t first, size_t count)
{
    size_t word = first / WORD;
    map[word] &= ~bits_of((unsigned)(first % WORD), &count);
    while (count > 0)
        map[++word] &= ~bits_of(0, &count);
}

bool chunk_map_has(size_t chunk)
{
    return (map[chunk / WORD] >> chunk % WORD & 1) != 0;
}

/* The next bit at `at` or after that is set once the word is exclusive-or'ed with `flip`: 0, or all bits for one that is
 * not set. Past the last word: where that ends. */
static size_t next(size_t at, uint64_t flip)
{
    size_t word = at / WORD;
    if (word >= end)
        return end * WORD;
    uint64_t bits = (map[word] ^ flip) & ~UINT64_C(0) << at % WORD;
    while (bits == 0) {
        if (++word >= end)
            return end * WORD;
        bits = map[word] ^ flip;
    }
    return word * WORD + (unsigned)__builtin_ctzll(bits);
}

size_t chunk_map_find(size_t count)
{
    size_t first = next(lowest * WORD, 0);
    lowest = first / WORD;
    while (first < end * WORD) {
        if (count == 1)
            return first;
        size_t behind = next(first, ~UINT64_C(0));
        if (behind - first >= count)
            return first;
        first = next(behind, 0);
    }
    return CHUNK_MAP_NONE;
}

void chunk_map_check(void)
{
    for (size_t word = 0; word < WORDS; word++)
        CHECK_THAT(map[word] == 0 || (word >= lowest && word < end));
}
