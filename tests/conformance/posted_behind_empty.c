/* posted_behind_empty.c - parks a slab whose live blocks were all freed by another thread, behind
 * the one empty slab that the heap keeps of this size class. The heap's look at its parked slabs
 * then gives the first one back, and the second one stays. cairn_check() aborts if the heap no
 * longer knows that it keeps an empty slab. */
#include "conformance.h"

#include <pthread.h>
#include <time.h>

enum { BYTES = 8192, PER_SLAB = 4, SLABS = 120 };

static char *blocks[SLABS][PER_SLAB];

static void *free_two(void *slab)
{
    char **of = slab;
    free(of[1]);
    free(of[2]);
    return NULL;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void free_first(int from, int to)
{
    for (int i = from; i < to; i++)
        free(blocks[i][0]);
}

int main(void)
{
    require_cairn();
    void (*check)(void) = (void (*)(void))named("cairn_check");
    void *kept = malloc(4 << 20);
    for (int i = 0; i < SLABS; i++)
        for (int j = 0; j < PER_SLAB; j++)
            if ((blocks[i][j] = malloc(BYTES)) - blocks[i][0] != j * BYTES)
                return 2; /* the blocks do not lie as this program needs them */
    /* The first look at the heap passes. */
    for (double end = now_s() + .03; now_s() < end;) {
        free(memset(malloc(6 << 20), 1, 6 << 20));
        for (int i = 0; i < 2000; i++)
            free(malloc(64));
    }
    /* About ten parked slabs are used again, so that the next look leaves the first few alone. */
    free_first(0, 19);
    free_first(80, 99);
    void *again[38];
    for (int i = 0; i < 38; i++)
        again[i] = malloc(BYTES);
    free_first(20, 32);

    pthread_t thread;
    free(blocks[110][0]);
    if (pthread_create(&thread, NULL, free_two, blocks[110]) != 0)
        return 2;
    pthread_join(thread, NULL);
    free(blocks[110][3]);
    free_first(32, 72);
    for (int j = 0; j < PER_SLAB; j++)
        free(blocks[100][j]);
    check();
    for (double end = now_s() + .5; now_s() < end;)
        for (int i = 0; i < 50; i++)
            free(malloc(64));
    check();
    for (int i = 0; i < 38; i++)
        free(again[i]);
    free(kept);
    puts("checked");
    return 0;
}
