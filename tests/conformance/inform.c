/* inform.c - inform stats|info|nothing: allocates some blocks, and prints statistics with
 * malloc_stats() or malloc_info(). */
#include "conformance.h"

int main(int argc, char **argv)
{
    require_cairn();
    void *blocks[300];
    for (size_t i = 0; i < COUNT(blocks); i++)
        blocks[i] = malloc(i * 200);
    for (size_t i = 0; i < COUNT(blocks); i += 3)
        free(blocks[i]);
    if (argc == 2 && strcmp(argv[1], "stats") == 0)
        malloc_stats();
    if (argc == 2 && strcmp(argv[1], "info") == 0)
        return malloc_info(1, stdout) == EINVAL && malloc_info(0, stdout) == 0 ? 0 : 1;
    return 0;
}
