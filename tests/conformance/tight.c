/* tight.c - tight MIB: requests 1 TiB, 20 GiB and 1 GiB under a limit of MIB mebibytes, which fail,
 * and then blocks of 1 MiB until one fails. Prints how many of these it got. */
#include "conformance.h"

int main(int argc, char **argv)
{
    require_cairn();
    size_t limit = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    for (int i = 0; i < 100; i++)
        if (malloc((size_t)1 << 40) != NULL || malloc((size_t)20 << 30) != NULL ||
            malloc((size_t)1 << 30) != NULL)
            return 1;
    size_t count = 0;
    for (char *p; count < limit && (p = malloc(1 << 20)) != NULL; count++)
        *p = 1;
    printf("%zu\n", count);
    return 0;
}
