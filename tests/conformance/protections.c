/* protections.c - misuses a block in one way that only the hardened build notices, or tests a
 * property that only the hardened build has.
 *
 *     protections KIND SIZE
 *
 * Exits with 0 if the allocator does not notice the misuse. If a property is missing, the program
 * exits with 3. The kinds are:
 *
 *     overflow N        writes N bytes beyond the end of a block, and frees the block
 *     underflow N       writes N bytes before the start of a block, and frees the block
 *     …-sized N         the same, but passes the block to malloc_usable_size() instead of free()
 *     …-resized N       the same, but passes it to realloc()
 *     write             writes to the last bytes of a freed block, and allocates until the block is
 *                       handed out again
 *     write-first       writes to the first bytes of a freed block, and allocates as `write` does
 *     stale             exits with 3 if a freed block still holds its contents
 *     dirty             exits with 3 if a new block holds the contents of a freed one
 *     reused            exits with 3 if a freed block is handed out by the next call
 *     ordered           exits with 3 if new blocks lie in the order of their addresses
 *     beyond            writes at the first OS page border behind a block
 *     far               writes from a block on, without an end; prints the bytes until a fault
 */
#include "conformance.h"

#include <malloc.h>
#include <signal.h>
#include <unistd.h>

enum { SOME = 64, MANY = 4096, STALE = 3 };

static unsigned char *blocks[MANY];

static unsigned char *take(size_t size)
{
    unsigned char *p = malloc(size);
    if (p == NULL)
        _exit(2);
    memset(p, 0x5a, size);
    return p;
}

static void take_some(size_t size)
{
    for (int i = 0; i < SOME; i++)
        blocks[i] = take(size);
}

/* Returns the block that lies closest behind another block, so that an underflow hits its
 * neighbour. */
static unsigned char *take_neighbour(size_t size)
{
    unsigned char *best = NULL;
    size_t nearest = SIZE_MAX;
    take_some(size);
    for (int i = 0; i < SOME; i++)
        for (int k = 0; k < SOME; k++) {
            size_t distance = (size_t)(blocks[i] - blocks[k]);
            /* A negative distance wraps. */
            if (i != k && distance < nearest) {
                nearest = distance;
                best = blocks[i];
            }
        }
    return best;
}

/* Changes each of `count` bytes. A fixed value would sometimes be what a secret canary holds. */
static void overwrite(unsigned char *at, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ((volatile unsigned char *)at)[i] ^= 0xff;
}

/* Allocates blocks until `freed` is handed out again, but at most MANY / 2 blocks. */
static void take_until(size_t size, const unsigned char *freed)
{
    for (int i = 0; i < MANY / 2; i++) {
        blocks[i] = malloc(size);
        if (blocks[i] == freed)
            return;
    }
}

/* Frees more blocks than a quarantine holds, so that earlier freed blocks are handed out again. */
static void free_more(size_t size)
{
    for (int i = 0; i < MANY / 2; i++)
        blocks[i] = malloc(size);
    for (int i = 0; i < MANY / 2; i++)
        free(blocks[i]);
}

static void write_after_free(size_t size, size_t offset)
{
    take_some(size);
    unsigned char *p = blocks[SOME / 2];
    free(p);
    overwrite(p + offset, 8);
    for (int i = 0; i < SOME; i++)
        if (blocks[i] != p)
            free(blocks[i]);
    if (size <= 5000)
        free_more(size);
    else
        for (int i = 0; i < SOME; i++)
            free(malloc(size));
    take_until(size, p);
}

static bool holds(const unsigned char *p, size_t size)
{
    size_t same = 0;
    for (size_t i = 16; i < size; i++)
        same += ((const volatile unsigned char *)p)[i] == 0x5a;
    return same > 0;
}

static int dirty(size_t size)
{
    take_some(size);
    for (int i = 0; i < SOME; i++)
        free(blocks[i]);
    for (int i = 0; i < SOME; i++)
        if (holds(malloc(size), size))
            return STALE;
    return 0;
}

static int stale(size_t size)
{
    take_some(size);
    unsigned char *p = blocks[SOME / 2];
    free(p);
    return holds(p, size) ? STALE : 0;
}

static int reused(size_t size)
{
    take_some(size);
    for (int i = 0; i < SOME; i++) {
        unsigned char *p = malloc(size);
        free(p);
        if (malloc(size) == p)
            return STALE;
    }
    return 0;
}

static int ordered(size_t size)
{
    int up = 0;
    take_some(size);
    for (int i = 1; i < SOME; i++)
        up += blocks[i] > blocks[i - 1];
    return up >= SOME - 4 ? STALE : 0;
}

static unsigned char *volatile from;
static unsigned char *volatile at;

static void on_fault(int signal)
{
    (void)signal;
    char line[32];
    int length = snprintf(line, sizeof line, "%zu\n", (size_t)(at - from));
    _exit(write(STDOUT_FILENO, line, (size_t)length) < 0);
}

static void far(size_t size)
{
    for (size_t i = 0; i < (24 << 20) / size; i++)
        from = i == 1000 ? take(size) : (take(size), from);
    signal(SIGSEGV, on_fault);
    for (at = from;; at++)
        *at = 0;
}

int main(int argc, char **argv)
{
    require_cairn();
    const char *kind = argv[1];
    size_t size = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    size_t count = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    if (strncmp(kind, "overflow", 8) == 0 || strncmp(kind, "underflow", 9) == 0) {
        unsigned char *p = take_neighbour(size);
        overwrite(*kind == 'o' ? p + size : p - count, count);
        const char *call = strchr(kind, '-');
        if (call == NULL)
            free(p);
        else if (strcmp(call, "-sized") == 0)
            (void)malloc_usable_size(p);
        else
            free(realloc(p, 2 * size));
    } else if (strcmp(kind, "write") == 0) {
        write_after_free(size, size / 8 * 8 - 8);
    } else if (strcmp(kind, "write-first") == 0) {
        write_after_free(size, 0);
    } else if (strcmp(kind, "stale") == 0) {
        return stale(size);
    } else if (strcmp(kind, "dirty") == 0) {
        return dirty(size);
    } else if (strcmp(kind, "reused") == 0) {
        return reused(size);
    } else if (strcmp(kind, "ordered") == 0) {
        return ordered(size);
    } else if (strcmp(kind, "beyond") == 0) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        unsigned char *p = take(size);
        overwrite((unsigned char *)(((uintptr_t)p + size + page - 1) & ~(page - 1)), 1);
    } else {
        far(size);
    }
    return 0;
}
