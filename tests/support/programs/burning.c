/* burning.c - an allocator that burns a known number of rounds of arithmetic in each malloc and
 * each free.
 *
 * BURN_ROUNDS is the number of rounds. A round takes the same time as a round of share.c, because
 * it does the same arithmetic and each round waits for the one before. A busy machine slows the
 * rounds of both files alike. The fences keep the processor from executing the program's rounds at
 * the same time.
 *
 * When the process ends, the file BURN_FILE gets the CPU time in ns in which memory was mapped.
 *
 * Each thread hands out blocks of one size from a list of its own. Larger blocks are mapped and
 * stay mapped.
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

enum { HEAD_BYTES = 16, BLOCK_BYTES = 1024, AREA_BYTES = 1 << 20 };

struct block {
    uint64_t bytes; /* behind the head */
    struct block *next;
};

static _Thread_local struct block *freed;
static _Thread_local char *area;
static _Thread_local size_t left_bytes;
static uint64_t map_ns;
static int64_t wanted = -1;

static int64_t wanted_rounds(void)
{
    if (wanted < 0) {
        const char *told = getenv("BURN_ROUNDS");
        wanted = told == NULL ? 0 : atol(told);
    }
    return wanted;
}

static void burn(void)
{
    uint64_t sum = 0;
    __asm__ volatile("lfence" ::: "memory");
    for (int64_t k = wanted_rounds(); k > 0; k--) {
        sum = sum * 31 + (sum >> 7);
        __asm__ volatile("" : "+r"(sum));
    }
    __asm__ volatile("lfence" ::: "memory");
}

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Maps memory together with all its pages, so that later accesses to it cause no page fault. */
static void *map(size_t bytes)
{
    uint64_t began_ns = cpu_ns();
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    __atomic_fetch_add(&map_ns, cpu_ns() - began_ns, __ATOMIC_RELAXED);
    return start == MAP_FAILED ? NULL : start;
}

static void *hand_out(size_t bytes)
{
    struct block *block = freed;
    if (bytes > BLOCK_BYTES - HEAD_BYTES) {
        block = map(bytes + HEAD_BYTES);
        if (block == NULL)
            return NULL;
        block->bytes = bytes;
        return (char *)block + HEAD_BYTES;
    }
    if (block != NULL) {
        freed = block->next;
        return (char *)block + HEAD_BYTES;
    }
    if (left_bytes < BLOCK_BYTES) {
        area = map(AREA_BYTES);
        left_bytes = AREA_BYTES;
        if (area == NULL)
            return NULL;
    }
    block = (struct block *)(void *)area;
    area += BLOCK_BYTES;
    left_bytes -= BLOCK_BYTES;
    block->bytes = BLOCK_BYTES - HEAD_BYTES;
    return (char *)block + HEAD_BYTES;
}

static struct block *block_of(void *given)
{
    return (struct block *)(void *)((char *)given - HEAD_BYTES);
}

EXPORTED void *malloc(size_t bytes)
{
    burn();
    return hand_out(bytes);
}

EXPORTED void free(void *given)
{
    if (given == NULL)
        return;
    burn();
    struct block *block = block_of(given);
    if (block->bytes != BLOCK_BYTES - HEAD_BYTES)
        return;
    block->next = freed;
    freed = block;
}

EXPORTED size_t malloc_usable_size(void *given)
{
    return given == NULL ? 0 : (size_t)block_of(given)->bytes;
}

#include "derived_calls.h"

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("BURN_FILE");
    int file = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file >= 0) {
        dprintf(file, "%llu\n", (unsigned long long)map_ns);
        close(file);
    }
}
