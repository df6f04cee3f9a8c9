/* filled.c - writes to one large block: filled BYTES. The block stays live. */
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    char *block = malloc(bytes);
    if (block == NULL)
        return 1;
    memset(block, 1, bytes);
    for (int i = 0; i < 10000; i++)
        free(malloc(100));
    return block[bytes / 2] != 1;
}
