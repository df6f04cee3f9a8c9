/* cold_blocks: new blocks are cold. A freed block is handed out again only after $ILL more blocks
 * of its size were freed. The block that was freed first is reused first.
 *
 * The freed blocks are in a ring of addresses, so the allocator itself reads none of them. In
 * comparison with a healthy allocator, Cairn must say that the program itself runs slower because
 * the memory of its new blocks is cold.
 * The finding is cold-blocks (docs/findings.md).
 */
#include "spaced.h"

enum { RING = 1 << 18 };

/* The freed blocks of one size class. They are numbered in the order of their frees; those with the
 * numbers `first` to `last` - 1 are in the ring. Block number i is freed[i % RING].
 */
struct ring {
    size_t first, last;
    struct slot **freed;
};

static struct ring rings[SERVED_MAX / 16 + 1];

static size_t spaced_bytes(size_t each)
{
    return each;
}

static struct slot *slot_find(size_t room)
{
    struct ring *ring = &rings[room / 16];
    return ring->last - ring->first > ill_strength ? ring->freed[ring->first++ % RING] : NULL;
}

/* A block that finds the ring full is never used again. */
static void slot_free(struct slot *slot)
{
    struct ring *ring = &rings[slot->room / 16];
    if (ring->freed == NULL) {
        void *made = mmap(NULL, RING * sizeof *ring->freed, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (made == MAP_FAILED)
            return;
        ring->freed = made;
    }
    if (ring->last - ring->first < RING)
        ring->freed[ring->last++ % RING] = slot;
}
