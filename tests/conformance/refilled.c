/* refilled.c - frees blocks of 5 MiB, and fills their memory with blocks of other sizes. A guard
 * that was left there would end the hardened build by a segmentation fault. Prints how many MiB of
 * the freed memory were filled. */
#include "conformance.h"

enum { LONG = 5 << 20, MANY = 8, SMALL = 10000, FILLS = (int)((size_t)MANY * LONG / SMALL) };

static char *freed[MANY];
static char *fills[FILLS];

static bool is_in_freed(const char *p)
{
    for (int i = 0; i < MANY; i++)
        if (p >= freed[i] && p < freed[i] + LONG)
            return true;
    return false;
}

int main(void)
{
    require_cairn();
    for (int i = 0; i < MANY; i++)
        if ((freed[i] = malloc(LONG)) == NULL)
            return 1;
        else
            memset(freed[i], 0x5a, LONG);
    for (int i = 0; i < MANY; i++)
        free(freed[i]);
    size_t bytes = 0;
    for (int i = 0; i < FILLS; i++) {
        if ((fills[i] = malloc(SMALL)) == NULL)
            return 1;
        memset(fills[i], 0x5a, SMALL);
        bytes += is_in_freed(fills[i]) ? SMALL : 0;
    }
    printf("%zu\n", bytes >> 20);
    return 0;
}
