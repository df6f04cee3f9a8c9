/* overruns.c - writes behind the end of a block and before its start. */
#include "misuse/scenarios.h"

#include <malloc.h>

enum { LETTERS, ZEROS, ONES, HEADER };

/* Returns the byte that an attack writes `at` bytes behind the place where glibc keeps the header
 * of a block. With HEADER, the header says that the block is twice as long. */
static unsigned char written(size_t size, int attack, size_t at)
{
    if (attack == HEADER && at < 8)
        return (unsigned char)((2 * chunk_bytes(size) | 1) >> at * 8);
    return attack == ZEROS ? 0 : attack == ONES ? 0xff : 'A';
}

/* The block and its neighbour are freed after the write, so that the allocator reads the bytes that
 * were written. */
static void end(unsigned char *p, unsigned char *neighbour)
{
    live_check();
    live_free(p);
    live_free(neighbour);
}

static void over(size_t size, int attack, size_t by)
{
    unsigned char *neighbour;
    unsigned char *p = live_pair(size, true, &neighbour);
    size_t header = malloc_usable_size(p);
    unsigned char *to = opaque(p);
    for (size_t at = size; at < size + by; at++)
        to[at] = written(size, attack, at - header); /* wraps to a large offset before the header */
    end(p, neighbour);
}

static void under(size_t size, int attack, size_t by)
{
    unsigned char *neighbour;
    unsigned char *p = live_pair(size, false, &neighbour);
    unsigned char *to = (unsigned char *)opaque(p) - by;
    for (size_t at = 0; at < by; at++)
        to[at] = written(size, attack, at + 8 - by); /* wraps to a large offset before the header */
    end(p, neighbour);
}

static void over_1(size_t size, int attack)
{
    over(size, attack, 1);
}

static void over_8(size_t size, int attack)
{
    over(size, attack, 8);
}

static void over_16(size_t size, int attack)
{
    over(size, attack, 16);
}

static void over_4096(size_t size, int attack)
{
    over(size, attack, 4096);
}

static void under_1(size_t size, int attack)
{
    under(size, attack, 1);
}

static void under_8(size_t size, int attack)
{
    under(size, attack, 8);
}

static void under_16(size_t size, int attack)
{
    under(size, attack, 16);
}

static void under_4096(size_t size, int attack)
{
    under(size, attack, 4096);
}

const struct scenario overruns[] = {
    {"overflow-1", 4, over_1, "1 byte is written behind the end of a block"},
    {"overflow-8", 4, over_8, "8 bytes are written behind the end of a block"},
    {"overflow-16", 4, over_16, "16 bytes are written behind the end of a block"},
    {"overflow-4096", 4, over_4096, "4,096 bytes are written behind the end of a block"},
    {"underflow-1", 4, under_1, "1 byte is written before the start of a block"},
    {"underflow-8", 4, under_8, "8 bytes are written before the start of a block"},
    {"underflow-16", 4, under_16, "16 bytes are written before the start of a block"},
    {"underflow-4096", 4, under_4096, "4,096 bytes are written before the start of a block"},
    {NULL, 0, NULL, NULL},
};
