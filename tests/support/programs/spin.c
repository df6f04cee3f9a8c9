/* spin.c - a program for measurements: a fixed amount of computing and a little allocation.
 *
 *     spin MILLIONS      millions of turns of a loop that the compiler cannot shorten (default 25);
 *                        25 million turns take about 50 ms
 *
 * With SPIN_EXTRA=N in the environment, the program does N thousandths more turns. This is a
 * slow-down of known size.
 *
 * With SPIN_HOLD=KIB, the program allocates and writes that much memory, and holds it until the
 * end.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    long turns = (argc > 1 ? atol(argv[1]) : 25) * 1000000;
    if (getenv("SPIN_EXTRA") != NULL)
        turns += turns / 1000 * atol(getenv("SPIN_EXTRA"));
    if (getenv("SPIN_HOLD") != NULL) {
        size_t bytes = strtoul(getenv("SPIN_HOLD"), NULL, 10) * 1024;
        char *held = malloc(bytes);
        if (held == NULL)
            return 1;
        memset(held, 1, bytes);
        /* The block is never freed, so that the peak of the program is known. */
    }
    uint64_t state = 88172645463325252u;
    uint64_t sum = 0;
    for (long turn = 0; turn < turns; turn++) {
        state ^= state << 13; /* xorshift64, Marsaglia 2003 */
        state ^= state >> 7;
        state ^= state << 17;
        sum += state;
        if (turn % 4096 == 0)
            free(malloc(64 + (state & 1023)));
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
