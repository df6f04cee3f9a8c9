#include "common/contents.h"

#include <stdbool.h>

/* may_alias: the memory of a block may have held objects of other types. Without the attribute, the
 * compiler could assume that a word does not overlap them. */
typedef uint64_t __attribute__((may_alias)) word;
typedef uint32_t __attribute__((may_alias)) half;
typedef uint16_t __attribute__((may_alias)) quarter;

/* Writes the first `count` (0 to 7) bytes of `value` to `at`, which is a multiple of 8. Three
 * branches take less time than a call of memcpy. */
static void write_tail(unsigned char *at, uint64_t value, size_t count)
{
    if (count & 4) {
        *(half *)at = (uint32_t)value;
        value >>= 32;
        at += 4;
    }
    if (count & 2) {
        *(quarter *)at = (uint16_t)value;
        value >>= 16;
        at += 2;
    }
    if (count & 1)
        *at = (unsigned char)value;
}

/* Reads the bytes that write_tail() wrote. */
static uint64_t read_tail(const unsigned char *at, size_t count)
{
    uint64_t value = 0;
    unsigned shift = 0;
    if (count & 4) {
        value = *(const half *)at;
        shift = 32;
        at += 4;
    }
    if (count & 2) {
        value |= (uint64_t)*(const quarter *)at << shift;
        shift += 16;
        at += 2;
    }
    if (count & 1)
        value |= (uint64_t)*at << shift;
    return value;
}

void contents_write(void *start, size_t from, size_t size, uint64_t key)
{
    word *words = start;
    size_t whole = size / 8;
    for (size_t i = from / 8; i < whole; i++)
        words[i] = key + i * CONTENTS_STEP;
    write_tail((unsigned char *)start + 8 * whole, key, size % 8);
}

uint64_t contents_sum(const void *start, size_t size)
{
    const word *words = start;
    size_t whole = size / 8;
    uint64_t sum = 0;
    for (size_t i = 0; i < whole; i++)
        sum += words[i];
    return sum + read_tail((const unsigned char *)start + 8 * whole, size % 8);
}

uint64_t contents_expected(size_t size, uint64_t key)
{
    uint64_t whole = size / 8;
    /* 0 + 1 + … + (whole - 1) */
    uint64_t pairs = whole % 2 == 0 ? whole / 2 * (whole - 1) : (whole - 1) / 2 * whole;
    uint64_t tail = size % 8 == 0 ? 0 : key & (UINT64_MAX >> (64 - 8 * (size % 8)));
    return whole * key + pairs * CONTENTS_STEP + tail;
}

bool contents_are_zero(const void *start, size_t size)
{
    const word *words = start;
    size_t whole = size / 8;
    uint64_t any = 0;
    for (size_t i = 0; i < whole; i++)
        any |= words[i];
    return (any | read_tail((const unsigned char *)start + 8 * whole, size % 8)) == 0;
}
