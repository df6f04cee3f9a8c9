/* churn.c - a program that allocates, touches and frees in N rounds, and prints a checksum.
 *
 *     churn ROUNDS [BYTES]      default 4,000 bytes a block
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    size_t bytes = argc > 2 ? (size_t)atol(argv[2]) : 4000;
    unsigned long sum = 0;
    char *kept[64] = {0};
    for (long round = 0; round < rounds; round++) {
        char **slot = &kept[round % 64];
        free(*slot);
        *slot = malloc(bytes);
        if (*slot == NULL)
            return 1;
        memset(*slot, (int)(round & 127), bytes);
        sum += (unsigned char)(*slot)[bytes / 2];
    }
    printf("checksum %lu\nrate %.1f per round\n", sum,
           (double)sum / (double)(rounds > 0 ? rounds : 1));
    return 0;
}
