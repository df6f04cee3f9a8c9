/* Makes 2,000,000 random pairs of malloc and free over 500 live blocks, and exits with 0. */
#include <stdlib.h>

int main(void)
{
    static char *live[500];
    unsigned seed = 1;
    for (long i = 0; i < 2000000; i++) {
        seed = seed * 1103515245 + 12345;
        int slot = (int)((seed >> 16) % 500);
        free(live[slot]);
        live[slot] = malloc(16 + (seed >> 8) % 300);
        live[slot][0] = 1;
    }
    return 0;
}
