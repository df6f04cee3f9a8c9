/* thinned.c - frees most of its blocks and then allocates twice as many: thinned COUNT BYTES KEEP.
 *
 * It allocates COUNT blocks of BYTES bytes and frees all but each KEEP-th. Then it allocates
 * 2 * COUNT blocks, which stay live. So the most blocks are live at its end. It works for about a
 * microsecond for each block, so that the probe may track many of them.
 */
#include <stdlib.h>

static char *block_of(size_t bytes)
{
    for (volatile int work = 0; work < 400; work++)
        continue;
    char *block = malloc(bytes);
    block[0] = 1;
    return block;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t count = strtoul(argv[1], NULL, 10), bytes = strtoul(argv[2], NULL, 10),
           keep = strtoul(argv[3], NULL, 10);
    char **blocks = malloc(count * sizeof *blocks);
    for (size_t i = 0; i < count; i++)
        blocks[i] = block_of(bytes);
    for (size_t i = 0; i < count; i++)
        if (i % keep != 0)
            free(blocks[i]);
    for (size_t i = 0; i < 2 * count; i++)
        block_of(bytes);
    return 0;
}
