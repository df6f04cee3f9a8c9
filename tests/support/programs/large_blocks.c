/* Allocates and frees 100 large blocks in a function whose name is NAMED, or make_block. */
#include <stdlib.h>

#ifndef NAMED
#define NAMED make_block
#endif

__attribute__((noinline)) static char *NAMED(void)
{
    char *block = malloc(100000);
    if (block == NULL)
        exit(1);
    *block = 1;
    return block;
}

int main(void)
{
    for (int i = 0; i < 100; i++) {
        volatile char *block = NAMED();
        free((void *)block);
    }
    return 0;
}
