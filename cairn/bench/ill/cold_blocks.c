/* cold_blocks: new blocks are cold. A freed block is handed out again only after $ILL more blocks
 * of its size were freed, the one that was freed first first.
 *
 * The freed blocks are in a ring of addresses, so the allocator itself reads none of them. In
 * comparison with a healthy allocator, Cairn must say that the program itself runs slower because
 * the memory of its new blocks is cold.
 * The finding is cold-blocks (docs/findings.md).
 */
#include "slots.h"

enum { RING = 1 << 18 };

struct pool { /* of one size class */
    char *at;
    size_t left, first, last;
    struct slot **freed; /* a ring: blocks `first` to `last` - 1 */
};

static struct pool pools[SERVED_MAX / 16 + 1];

static struct slot *slot_find(size_t room)
{
    struct pool *pool = &pools[room / 16];
    return pool->last - pool->first > ill_strength ? pool->freed[pool->first++ % RING] : NULL;
}

static struct slot *slot_cut(size_t room)
{
    struct pool *pool = &pools[room / 16];
    size_t each = sizeof(struct slot) + room;
    if (pool->left < each) {
        pool->at = slot_piece();
        if (pool->at == NULL)
            return NULL;
        pool->left = PIECE;
    }
    struct slot *slot = (struct slot *)pool->at;
    pool->at += each;
    pool->left -= each;
    return slot;
}

/* A block that finds the ring full is never used again. */
static void slot_free(struct slot *slot)
{
    struct pool *pool = &pools[slot->room / 16];
    if (pool->freed == NULL) {
        void *made = mmap(NULL, RING * sizeof *pool->freed, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (made == MAP_FAILED)
            return;
        pool->freed = made;
    }
    if (pool->last - pool->first < RING)
        pool->freed[pool->last++ % RING] = slot;
}
