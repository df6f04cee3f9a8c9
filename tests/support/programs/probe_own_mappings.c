/* probe_own_mappings.c - grows 64 blocks to 2 MiB each, in place if possible, and makes other
 * mappings between them by mmap. The program writes to all this memory and keeps it for a tenth of
 * a second. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BLOCKS = 64, STEP = 65536, MOST = 2 << 20, OWN = 300000 };

int main(void)
{
    static char *blocks[BLOCKS];
    for (size_t bytes = STEP; bytes <= MOST; bytes += STEP)
        for (size_t i = 0; i < BLOCKS; i++) {
            char *grown = realloc(blocks[i], bytes);
            if (grown == NULL)
                return 1;
            memset(grown + bytes - STEP, 1, STEP);
            blocks[i] = grown;
        }
    for (size_t i = 0; i < BLOCKS; i++) {
        char *own = mmap(NULL, OWN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *block = malloc(150000);
        if (own == MAP_FAILED || block == NULL)
            return 1;
        memset(own, 1, OWN);
        memset(block, 1, 150000);
    }
    clock_t end = clock() + CLOCKS_PER_SEC / 10;
    for (size_t i = 0; clock() < end; i = (i + 1) % BLOCKS) {
        /* The probe measures memory only when something is allocated. */
        char *block = malloc(40000);
        if (block == NULL)
            return 1;
        block[0] = 1;
        free(block);
    }
    return 0;
}
