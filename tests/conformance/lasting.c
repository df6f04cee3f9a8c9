/* lasting.c - lasting KB: fills 48 MiB with small blocks that stay. Then it allocates and frees
 * other blocks for at least two and at most twenty seconds, until KB kilobytes are in huge pages.
 * Prints the resident KB before and after this time, and the KB in huge pages at the end. Prints
 * "unsupported" instead if the kernel cannot make a huge page of resident memory. */
#include "conformance.h"

#include <sys/mman.h>
#include <time.h>

enum { BLOCK = 1000, BLOCKS = 48 * 1024, PASSING = 4, HUGE = 2 << 20 };

static bool is_supported(void)
{
    char *all = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return false;
    char *start = (char *)(((uintptr_t)all + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    for (size_t i = 0; i < HUGE; i += 4096)
        start[i] = 1;
    bool done = madvise(start, HUGE, 25 /* MADV_COLLAPSE */) == 0;
    munmap(all, 2 * HUGE);
    return done;
}

int main(int argc, char **argv)
{
    long wanted = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    static char *blocks[BLOCKS];
    static char *passing[PASSING];
    if (!is_supported()) {
        puts("unsupported");
        return 0;
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BLOCK);
        memset(blocks[i], (int)(i % 251), BLOCK);
    }
    long before = status_kb("VmRSS:");
    time_t start = time(NULL);
    for (time_t now; (now = time(NULL)) < start + 20 &&
                     (now < start + 2 || rollup_kb("AnonHugePages:") < wanted);)
        for (size_t i = 0; i < 1000 * PASSING; i++) {
            free(passing[i % PASSING]);
            passing[i % PASSING] = malloc(3 << 20);
        }
    long after = status_kb("VmRSS:");
    for (size_t i = 0; i < BLOCKS; i++)
        for (size_t k = 0; k < BLOCK; k++)
            if (blocks[i][k] != (char)(i % 251))
                return 1;
    printf("%ld %ld %ld\n", before, after, rollup_kb("AnonHugePages:"));
    return 0;
}
