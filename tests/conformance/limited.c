/* limited.c - limited COUNT: prints two numbers. The first is how many blocks of one mebibyte
 * malloc returns, at most COUNT. The second is COUNT if malloc also returns one block of COUNT
 * mebibytes, otherwise 0. */
#include "conformance.h"

int main(int argc, char **argv)
{
    size_t wanted = argc > 1 ? (size_t)atoi(argv[1]) : 0;
    size_t mib = (size_t)1 << 20;
    static char *blocks[1000];
    size_t count = 0;
    while (count < wanted && count < COUNT(blocks) && (blocks[count] = malloc(mib - 100)) != NULL)
        memset(blocks[count++], 1, mib - 100);
    size_t given = count;
    while (count > 0)
        free(blocks[--count]);
    char *all = malloc(wanted * mib);
    if (all == NULL && errno != ENOMEM)
        return 1;
    printf("%zu %zu\n", given, all == NULL ? 0 : wanted);
    free(all);
    return 0;
}
