/* Allocates blocks of 4,000 bytes, writes them, and reads bytes at random places in them. Every
 * thousandth read allocates and frees a small block, so that the probe can look at the memory.
 *
 * The arguments are the number of blocks and the number of reads.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 4000 };

int main(int count, char **arguments)
{
    size_t blocks = count > 1 ? strtoul(arguments[1], NULL, 10) : 50000;
    size_t reads = count > 2 ? strtoul(arguments[2], NULL, 10) : 10000000;
    unsigned char **table = malloc(blocks * sizeof *table);
    for (size_t i = 0; table != NULL && i < blocks; i++) {
        table[i] = malloc(BLOCK_BYTES);
        if (table[i] == NULL)
            return 1;
        memset(table[i], 1, BLOCK_BYTES);
    }
    uint64_t random = 88172645463325252u, sum = 0; /* xorshift64 */
    for (size_t i = 0; table != NULL && i < reads; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        sum += table[random % blocks][(random >> 40) % BLOCK_BYTES];
        if (i % 1000 == 0)
            free(malloc(64));
    }
    return table == NULL || sum != reads;
}
