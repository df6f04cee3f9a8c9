/* Allocates 150,000 blocks of 48 bytes and never frees them. Then it allocates and frees single
 * blocks of 16 bytes. It sleeps twice, before and during these calls, so that the probe looks at
 * the memory. */
#include <stdlib.h>
#include <time.h>

static void use_briefly(int times)
{
    for (int i = 0; i < times; i++) {
        volatile char *block = malloc(16);
        if (block == NULL)
            exit(1);
        *block = 1;
        free((void *)block);
    }
}

int main(void)
{
    static char *kept[150000];
    const struct timespec pause = {0, 300000000};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        kept[i] = malloc(48);
        if (kept[i] == NULL)
            return 1;
        *kept[i] = 1;
    }
    nanosleep(&pause, NULL);
    use_briefly(200000);
    nanosleep(&pause, NULL);
    use_briefly(20000);
    return 0;
}
