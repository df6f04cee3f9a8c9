/* fill_and_empty.c - allocates, writes and frees many blocks. Prints four fields of struct
 * cairn_stats: learnt, held_bytes, purged_bytes and idle_bytes. An epoch is a quarter of a second,
 * after which the allocator purges idle memory (purge.h). The argument is one of
 *
 *     swings   allocates and frees all blocks eight times; each time is much shorter than an epoch
 *     slowly   allocates all blocks, frees a third of them over several epochs, then the rest
 *     once     as swings; then allocates and frees four times as many blocks once
 */
#include "conformance.h"

#include <cairn/cairn.h>

enum { BLOCKS = 60, MORE_BLOCKS = 4 * BLOCKS, SLOW_BLOCKS = 40, BYTES = 4 << 20, TURNS = 8 };

static char *blocks[MORE_BLOCKS];

static void fill(int count)
{
    for (int i = 0; i < count; i++) {
        if ((blocks[i] = malloc(BYTES)) == NULL)
            exit(1);
        for (size_t at = 0; at < BYTES; at += 4096)
            blocks[i][at] = 1;
    }
}

static void empty(int from, int to, unsigned pause_ms)
{
    for (int i = from; i < to; i++) {
        free(blocks[i]);
        usleep(pause_ms * 1000);
    }
}

int main(int count, char **arguments)
{
    const char *mode = count > 1 ? arguments[1] : "";
    struct cairn_stats stats;
    if (strcmp(mode, "slowly") == 0) {
        fill(MORE_BLOCKS / 2);
        empty(0, SLOW_BLOCKS, 30);
        empty(SLOW_BLOCKS, MORE_BLOCKS / 2, 0);
    } else {
        for (int turn = 0; turn < TURNS; turn++) {
            fill(BLOCKS);
            empty(0, BLOCKS, 0);
        }
    }
    if (strcmp(mode, "once") == 0) {
        fill(MORE_BLOCKS);
        empty(0, MORE_BLOCKS, 0);
    }
    cairn_statistics(&stats);
    printf("%llu %zu %zu %zu\n", (unsigned long long)stats.learnt, stats.held_bytes,
           stats.purged_bytes, stats.idle_bytes);
    return 0;
}
