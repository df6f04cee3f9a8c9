/* inspected.c - uses memory or CPU time in a known way, for tests of 'cairn inspect'.
 *
 *     inspected live             allocates and frees, prints the bytes of its live blocks with
 *                                their headers in glibc, and waits
 *     inspected threads          the same in eight threads
 *     inspected grow BYTES       touches this many new bytes of malloc's memory in each second
 *     inspected huge             asks for huge pages for 32 MiB of mapped memory, and waits
 *     inspected burn WORK        WORK rounds of arithmetic, a malloc and a free, again and again;
 *                                the rounds are those of burning.c
 *     inspected idle             waits
 *
 * Each prints a line when it is ready.
 */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 3000, THREADS = 8, HUGE_BYTES = 32 << 20, STEP_NS = 5000000 };

static size_t asked(size_t place, size_t thread)
{
    return 16 + (place * 7919 + thread * 13) % 3000;
}

/* Returns the size of a block of glibc with its header of 8 bytes. */
static size_t block_bytes(size_t bytes)
{
    return (bytes + 8 + 15) / 16 * 16;
}

/* Allocates BLOCKS blocks and frees every second one. Returns the number of live bytes in glibc's
 * blocks, including the array of pointers. */
static size_t leave_half(size_t thread)
{
    char **blocks = malloc(BLOCKS * sizeof *blocks);
    size_t live = block_bytes(BLOCKS * sizeof *blocks);
    /* From 128 KiB on, glibc gives a block a mapping of its own. */
    if (BLOCKS * sizeof *blocks >= 128 << 10)
        live = (BLOCKS * sizeof *blocks + 16 + 4095) / 4096 * 4096;
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(asked(i, thread));
        memset(blocks[i], 1, asked(i, thread));
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        if (i % 2 == thread % 2)
            free(blocks[i]);
        else
            live += block_bytes(asked(i, thread));
    }
    return live;
}

static pthread_barrier_t ready;
static size_t live_of[THREADS];

static void *run_thread(void *number)
{
    size_t thread = (size_t)(uintptr_t)number;
    live_of[thread] = leave_half(thread);
    pthread_barrier_wait(&ready);
    pause();
    return NULL;
}

static size_t leave_half_in_threads(void)
{
    size_t live = 0;
    pthread_barrier_init(&ready, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, run_thread, (void *)(uintptr_t)i);
    }
    pthread_barrier_wait(&ready);
    for (size_t i = 0; i < THREADS; i++)
        live += live_of[i];
    return live;
}

static void say(size_t number)
{
    printf("%zu\n", number);
    fflush(stdout);
}

static void grow(size_t bytes_per_s)
{
    struct timespec began, now;
    size_t grown = 0;
    clock_gettime(CLOCK_MONOTONIC, &began);
    say(bytes_per_s);
    for (;;) {
        const struct timespec step = {.tv_nsec = STEP_NS};
        nanosleep(&step, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        double seconds =
            (double)(now.tv_sec - began.tv_sec) + (double)(now.tv_nsec - began.tv_nsec) / 1e9;
        while ((double)grown < seconds * (double)bytes_per_s) {
            char *block = malloc(4096 - 16); /* one page, including the block's header */
            memset(block, 1, 4096 - 16);
            grown += 4096;
        }
    }
}

__attribute__((noinline)) static void *take(void)
{
    void *block = malloc(100);
    __asm__ volatile("" : "+r"(block));
    return block;
}

__attribute__((noinline)) static void give(void *block)
{
    free(block);
    __asm__ volatile("" ::: "memory"); /* keeps free() from becoming a tail call */
}

__attribute__((noinline)) static void serve(long work)
{
    uint64_t sum = 0;
    __asm__ volatile("lfence" ::: "memory");
    for (long k = work; k > 0; k--) {
        sum = sum * 31 + (sum >> 7);
        __asm__ volatile("" : "+r"(sum));
    }
    __asm__ volatile("lfence" ::: "memory");
    give(take());
    __asm__ volatile("" ::: "memory");
}

int main(int count, char **words)
{
    const char *how = count > 1 ? words[1] : "idle";
    long number = count > 2 ? atol(words[2]) : 0;
    if (strcmp(how, "live") == 0) {
        say(leave_half(0));
    } else if (strcmp(how, "threads") == 0) {
        say(leave_half_in_threads());
    } else if (strcmp(how, "grow") == 0) {
        grow((size_t)number);
    } else if (strcmp(how, "huge") == 0) {
        char *area =
            mmap(NULL, HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(area, HUGE_BYTES, MADV_HUGEPAGE);
        memset(area, 1, HUGE_BYTES);
        say(HUGE_BYTES);
    } else if (strcmp(how, "burn") == 0) {
        say((size_t)number);
        for (;;)
            serve(number);
    } else {
        free(malloc(100));
        say(0);
    }
    for (;;)
        pause();
}
