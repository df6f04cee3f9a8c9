/* Allocates blocks of 4,000 bytes, writes them, and reads bytes at random places in them. Every
 * thousandth read allocates and frees a small block, so that the probe can look at the memory.
 *
 * The arguments are the number of blocks and the number of reads. With a third argument, the blocks
 * are parts of one large block, for which the program asks the kernel for huge pages.
 */
#define _GNU_SOURCE 1
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BLOCK_BYTES = 4000, HUGE_BYTES = 2 << 20 };

/* Returns a block that begins and ends with a huge page, or NULL. */
static unsigned char *huge_block(size_t bytes)
{
    bytes = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    unsigned char *block = aligned_alloc(HUGE_BYTES, bytes);
    return block != NULL && madvise(block, bytes, MADV_HUGEPAGE) == 0 ? block : NULL;
}

int main(int count, char **arguments)
{
    size_t blocks = count > 1 ? strtoul(arguments[1], NULL, 10) : 50000;
    size_t reads = count > 2 ? strtoul(arguments[2], NULL, 10) : 10000000;
    unsigned char **table = malloc(blocks * sizeof *table);
    unsigned char *whole = count > 3 ? huge_block(blocks * BLOCK_BYTES) : NULL;
    if (count > 3 && whole == NULL)
        return 1;
    for (size_t i = 0; table != NULL && i < blocks; i++) {
        table[i] = whole != NULL ? whole + i * BLOCK_BYTES : malloc(BLOCK_BYTES);
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
