/* spaced.h - cuts slots one behind another, with a distance that the illness chooses.
 *
 * The file that includes it defines spaced_bytes(), which returns the bytes from one slot to the
 * next, given those of a slot.
 */
#ifndef ILL_SPACED_H
#define ILL_SPACED_H

#include "slots.h"

static size_t spaced_bytes(size_t each);

struct pool { /* of one size class */
    char *at;
    size_t left;
};

static struct pool pools[SERVED_MAX / 16 + 1];

static struct slot *slot_cut(size_t room)
{
    struct pool *pool = &pools[room / 16];
    size_t each = (spaced_bytes(sizeof(struct slot) + room) + 15) & ~(size_t)15;
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

#endif
