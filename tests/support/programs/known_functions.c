/* known_functions.c - an allocator whose functions take known shares of its CPU time.
 *
 * Each malloc calls five functions that burn 100, 200, 300, 500 and 900 rounds of arithmetic, so
 * they take 5, 10, 15, 25 and 45 % of the rounds. A free burns nothing. Each round waits for the
 * one before. The fences keep the processor from executing rounds of two functions at the same
 * time. Blocks of up to 1 KiB come from a list for each thread; larger blocks are mapped.
 */
#define _GNU_SOURCE 1
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORTED __attribute__((visibility("default")))

enum { HEAD_BYTES = 16, BLOCK_BYTES = 1024, AREA_BYTES = 1 << 20 };

static _Thread_local void *freed;
static _Thread_local char *area;
static _Thread_local size_t left_bytes;

#define BURNS(name, rounds)                                                                        \
    __attribute__((noinline)) static void name(void)                                               \
    {                                                                                              \
        uint64_t sum = 0;                                                                          \
        __asm__ volatile("lfence" ::: "memory");                                                   \
        for (int k = rounds; k > 0; k--) {                                                         \
            sum = sum * 31 + (sum >> 7);                                                           \
            __asm__ volatile("" : "+r"(sum));                                                      \
        }                                                                                          \
        __asm__ volatile("lfence" ::: "memory");                                                   \
    }

BURNS(burns_5, 100)
BURNS(burns_10, 200)
BURNS(burns_15, 300)
BURNS(burns_25, 500)
BURNS(burns_45, 900)

static void *hand_out(size_t bytes)
{
    if (bytes > BLOCK_BYTES - HEAD_BYTES) {
        char *start = mmap(NULL, bytes + HEAD_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (start == MAP_FAILED)
            return NULL;
        *(size_t *)(void *)start = bytes;
        return start + HEAD_BYTES;
    }
    if (freed != NULL) {
        void *given = freed;
        memcpy(&freed, given, sizeof freed);
        return given;
    }
    if (left_bytes < BLOCK_BYTES) {
        area = mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        left_bytes = area == MAP_FAILED ? 0 : AREA_BYTES;
        if (area == MAP_FAILED)
            return NULL;
    }
    char *given = area + HEAD_BYTES;
    *(size_t *)(void *)area = BLOCK_BYTES - HEAD_BYTES;
    area += BLOCK_BYTES;
    left_bytes -= BLOCK_BYTES;
    return given;
}

EXPORTED void *malloc(size_t bytes)
{
    burns_5();
    burns_10();
    burns_15();
    burns_25();
    burns_45();
    return hand_out(bytes);
}

EXPORTED size_t malloc_usable_size(void *given)
{
    return given == NULL ? 0 : *(size_t *)(void *)((char *)given - HEAD_BYTES);
}

EXPORTED void free(void *given)
{
    if (given == NULL || malloc_usable_size(given) != BLOCK_BYTES - HEAD_BYTES)
        return;
    memcpy(given, &freed, sizeof freed);
    freed = given;
}

#include "derived_calls.h"
