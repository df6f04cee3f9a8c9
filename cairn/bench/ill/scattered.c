/* scattered: consecutive blocks of a size lie far apart. New blocks are cut from a piece of 64 MiB
 * in an order that jumps by $ILL blocks, an odd number. Freed blocks are reused at once.
 *
 * The allocator itself does the usual work of a healthy allocator. In comparison with such an
 * allocator, Cairn must say that the program itself runs slower because its blocks lie
 * scattered. The finding is blocks-scattered (docs/findings.md).
 */
#include "reused.h"

/* The piece of memory at `at` from which the slots of one size class are cut. It has room for
 * `count` slots. `used` of them were cut, the last one at the index `place`.
 */
struct pool {
    char *at;
    size_t count, used, place;
};

static struct pool pools[SERVED_MAX / 16 + 1];

static struct slot *slot_cut(size_t room)
{
    struct pool *pool = &pools[room / 16];
    size_t each = sizeof(struct slot) + room;
    if (pool->used == pool->count) {
        pool->at = slot_piece();
        if (pool->at == NULL)
            return NULL;
        /* The number of slots is a power of two, so an odd step visits each slot once. */
        pool->used = pool->place = 0;
        for (pool->count = 1; pool->count * 2 * each <= PIECE; pool->count *= 2)
            ;
    }
    pool->place = (pool->place + ill_strength) & (pool->count - 1);
    pool->used++;
    return (struct slot *)(pool->at + pool->place * each);
}
