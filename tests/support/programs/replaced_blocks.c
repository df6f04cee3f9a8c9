/* One thread replaces 2,000 live blocks at random, as a server does. Most blocks have 16 to 143
 * bytes; one in 16 has up to 9 KiB. The program touches the first and the last byte of each.
 *
 * The argument is the number of replacements.
 */
#include <stdlib.h>

enum { LIVE = 2000 };

static unsigned next_random(unsigned *state)
{
    *state = *state * 1103515245 + 12345;
    return *state;
}

int main(int count, char **arguments)
{
    static char *blocks[LIVE];
    long replacements = count > 1 ? strtol(arguments[1], NULL, 10) : 1000000;
    unsigned state = 7;
    long sum = 0;
    for (long i = 0; i < replacements; i++) {
        char **block = &blocks[(next_random(&state) >> 12) % LIVE];
        unsigned random = next_random(&state);
        size_t bytes = 16 + ((random >> 8) & 127);
        if ((random >> 20) % 16 == 0)
            bytes = 1000 + ((random >> 8) & 8191);
        if (*block != NULL)
            sum += **block;
        free(*block);
        *block = malloc(bytes);
        if (*block == NULL)
            return 1;
        (*block)[0] = 1;
        (*block)[bytes - 1] = 2;
    }
    return sum < 0;
}
