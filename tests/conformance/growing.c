/* growing.c - growing MIB: fills MIB mebibytes with blocks of 1,000 bytes. Prints how many
 * kilobytes are resident in huge pages, and how many are resident in all. Then it frees all but
 * every sixteenth group of 64 blocks, trims, and prints both numbers again. */
#include "conformance.h"

enum { SIZE = 1000 };

static void print_resident(void)
{
    char line[256];
    long huge = -1;
    long resident = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        sscanf(line, "AnonHugePages: %ld", &huge);
        sscanf(line, "Rss: %ld", &resident);
    }
    if (file != NULL)
        fclose(file);
    printf("%ld %ld\n", huge, resident);
}

int main(int argc, char **argv)
{
    size_t count = (argc > 1 ? (size_t)atoi(argv[1]) : 1) * 1024 * 1024 / SIZE;
    void **blocks = calloc(count, sizeof *blocks);
    for (size_t i = 0; i < count; i++)
        memset(blocks[i] = malloc(SIZE), 1, SIZE);
    print_resident();
    for (size_t i = 0; i < count; i++)
        if (i / 64 % 16 != 0)
            free(blocks[i]);
    malloc_trim(0);
    print_resident();
    return 0;
}
