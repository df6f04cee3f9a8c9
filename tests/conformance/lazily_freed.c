/* lazily_freed.c - frees 64 MiB and returns them to the kernel. Prints the KB that are lazily
 * freed: the kernel takes such pages only when it needs memory (MADV_FREE). Then the program
 * allocates 64 MiB with calloc, and prints how many of the bytes are not zero. */
#include "conformance.h"

enum { BYTES = 64 << 20 };

int main(void)
{
    char *block = malloc(BYTES);
    memset(block, 1, BYTES);
    free(block);
    malloc_trim(0);
    long lazy = rollup_kb("LazyFree:");
    char *again = calloc(1, BYTES);
    size_t wrong = 0;
    for (size_t i = 0; i < BYTES; i++)
        wrong += again[i] != 0;
    printf("%ld %zu\n", lazy, wrong);
    free(again);
    return 0;
}
