/* probe_sizes.c - allocates SIZE bytes and frees them, COUNT times, for each pair of arguments. */
#include <stdlib.h>

static void *(*volatile do_malloc)(size_t) = malloc;
static void (*volatile do_free)(void *) = free;

int main(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2)
        for (long count = atol(argv[i + 1]); count > 0; count--)
            do_free(do_malloc((size_t)atol(argv[i])));
    return 0;
}
