/* learning: memory is filled and emptied in turns, several times faster than an epoch; what was learnt of that, and what it spared. */
#include "conformance.h"

#include <cairn/cairn.h>

enum { BLOCKS = 60, BYTES = 4 << 20, TURNS = 8 };

int main(void)
{
    static char *blocks[BLOCKS];
    struct cairn_stats stats;
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < BLOCKS; i++) {
            if ((blocks[i] = malloc(BYTES)) == NULL)
                return 1;
            for (size_t at = 0; at < BYTES; at += 4096)
                blocks[i][at] = 1;
        }
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
    }
    cairn_statistics(&stats);
    printf("%llu %zu %zu\n", (unsigned long long)stats.learnt, stats.held_bytes, stats.purged_bytes);
    return 0;
}
