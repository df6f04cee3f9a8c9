/* Runs for the given number of microseconds. */
#include <stdlib.h>
#include <time.h>

static long now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int main(int argc, char **argv)
{
    long end = now_us() + atol(argv[1]);
    while (now_us() < end) {
    }
}
