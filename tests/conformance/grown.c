/* grown.c - grows three blocks in turns from 1 to 24 MiB, so that each has to move. Checks their
 * contents, and prints "grown". With the argument "no-files", the process can open no file. */
#include "conformance.h"

#include <sys/resource.h>

enum { BLOCKS = 3, STEP = 1 << 20, STEPS = 24 };

int main(int argc, char **argv)
{
    require_cairn();
    struct rlimit none = {0, 0};
    if (argc > 1 && strcmp(argv[1], "no-files") == 0 && setrlimit(RLIMIT_NOFILE, &none) != 0)
        return 3;
    unsigned char *blocks[BLOCKS] = {NULL};
    for (size_t size = STEP; size <= (size_t)STEPS * STEP; size += STEP)
        for (size_t i = 0; i < BLOCKS; i++) {
            blocks[i] = realloc(blocks[i], size);
            if (blocks[i] == NULL)
                return 1;
            memset(blocks[i] + size - STEP, (int)(size / STEP + i), STEP);
        }
    for (size_t i = 0; i < BLOCKS; i++)
        for (size_t at = 0; at < (size_t)STEPS * STEP; at += 509)
            if (blocks[i][at] != at / STEP + 1 + i)
                return 2;
    puts("grown");
    return 0;
}
