/* purge_while_busy.c - allocates and frees 48 MiB of blocks. Then, for two seconds, the program
 * allocates and frees only small blocks in a few slabs, none of which becomes empty. Prints the
 * resident KB before and after those two seconds. */
#include "conformance.h"

#include <time.h>

enum { BLOCK = 1000, BLOCKS = 48 * 1024, KEPT = 4000, BATCH = 500 };

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(void)
{
    static char *blocks[BLOCKS];
    static char *kept[KEPT];
    uint64_t state = 1;
    for (size_t i = 0; i < KEPT; i++)
        kept[i] = malloc(64);
    for (size_t i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(BLOCK), 1, BLOCK);
    for (size_t i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    long before = status_kb("VmRSS:");
    double start = now_s();
    while (now_s() < start + 2)
        for (int round = 0; round < 100; round++) {
            size_t first = draw_below(&state, KEPT);
            for (size_t i = 0; i < BATCH; i++) {
                size_t place = (first + i * 7) % KEPT;
                if (place % 16 == 0)
                    continue; /* blocks that stay, so that no slab becomes empty */
                free(kept[place]);
                kept[place] = NULL;
            }
            for (size_t i = 0; i < KEPT; i++)
                if (kept[i] == NULL)
                    *(kept[i] = malloc(64)) = 1;
        }
    printf("%ld %ld\n", before, status_kb("VmRSS:"));
    return 0;
}
