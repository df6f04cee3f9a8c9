#include "common/contents.h"

#include <stdbool.h>
#include <string.h>

typedef uint64_t __attribute__((may_alias)) word; /* a block holds anything before it holds words */

void contents_write(void *start, size_t from, size_t size, uint64_t key)
{
    word *words = start;
    size_t whole = size / 8;
    for (size_t i = from / 8; i < whole; i++)
        words[i] = key + i * CONTENTS_STEP;
    memcpy((char *)start + 8 * whole, &key, size % 8);
}

uint64_t contents_sum(const void *start, size_t size)
{
    const word *words = start;
    size_t whole = size / 8;
    uint64_t sum = 0;
    for (size_t i = 0; i < whole; i++)
        sum += words[i];
    uint64_t tail = 0;
    memcpy(&tail, (const char *)start + 8 * whole, size % 8);
    return sum + tail;
}

uint64_t contents_expected(size_t size, uint64_t key)
{
    uint64_t whole = size / 8;
    uint64_t pairs =
        whole % 2 == 0 ? whole / 2 * (whole - 1) : (whole - 1) / 2 * whole; /* 0 + 1 + … + whole - 1 */
    uint64_t tail = 0;
    memcpy(&tail, &key, size % 8);
    return whole * key + pairs * CONTENTS_STEP + tail;
}

bool contents_are_zero(const void *start, size_t size)
{
    const word *words = start;
    size_t whole = size / 8;
    uint64_t any = 0;
    for (size_t i = 0; i < whole; i++)
        any |= words[i];
    uint64_t tail = 0;
    memcpy(&tail, (const char *)start + 8 * whole, size % 8);
    return (any | tail) == 0;
}
