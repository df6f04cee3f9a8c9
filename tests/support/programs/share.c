/* share.c - spends a part of its CPU time in the allocator. A test can compute this part without a
 * profiler.
 *
 *     share PAIRS WORK CALLS THREADS [SLOTS]
 *
 * Each of THREADS threads makes PAIRS turns. A turn is WORK rounds of arithmetic and, if CALLS is
 * 1, a free and a malloc. If CALLS is 0, the program uses static memory instead of blocks. So the
 * allocator's CPU time is the difference between two runs: one with CALLS 1 and one with CALLS 0.
 *
 * Each thread has at most SLOTS live blocks (1,000 by default, which is the maximum). If SLOTS is
 * small, all blocks stay in the cache and the program does not wait for memory.
 *
 * Prints the CPU time of the process in nanoseconds, as it is at the end of main().
 */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SLOTS_MOST = 1000, BLOCK_BYTES = 520, THREADS_MOST = 16 };

static long pairs, work, calls;
static uint32_t slots = SLOTS_MOST;
static char spare[THREADS_MOST][SLOTS_MOST][BLOCK_BYTES];

static void *turns(void *of)
{
    char (*blocks)[BLOCK_BYTES] = of;
    static _Thread_local char *live[SLOTS_MOST];
    uint32_t seed = 1;
    uint64_t sum = 0;
    for (long i = 0; i < pairs; i++) {
        seed = seed * 1103515245u + 12345u;
        uint32_t slot = (seed >> 16) % slots;
        size_t bytes = 16 + (seed >> 8) % 500;
        if (live[slot] != NULL)
            sum += (unsigned char)live[slot][0];
        if (calls) {
            free(live[slot]);
            live[slot] = malloc(bytes);
        } else {
            live[slot] = blocks[slot];
        }
        live[slot][0] = (char)i;
        for (long k = 0; k < work; k++) {
            sum = sum * 31 + (sum >> 7);
            __asm__ volatile("" : "+r"(sum));
        }
    }
    return sum == 42 ? of : NULL;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    pairs = atol(argv[1]);
    work = atol(argv[2]);
    calls = atol(argv[3]);
    long threads = atol(argv[4]);
    if (argc > 5)
        slots = (uint32_t)atol(argv[5]);
    if (slots < 1 || slots > SLOTS_MOST)
        return 2;
    pthread_t others[THREADS_MOST];
    for (long i = 1; i < threads && i < THREADS_MOST; i++)
        if (pthread_create(&others[i], NULL, turns, spare[i]) != 0)
            return 1;
    turns(spare[0]);
    for (long i = 1; i < threads && i < THREADS_MOST; i++)
        pthread_join(others[i], NULL);
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    printf("%llu\n",
           (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec);
    return 0;
}
