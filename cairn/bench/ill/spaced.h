/* spaced.h - cuts slots one behind another, with a distance that the illness chooses.
 *
 * The file that includes this header defines spaced_bytes(). It gets the size of a slot in bytes,
 * and returns the distance in bytes from the start of one slot to the start of the next.
 */
#ifndef ILL_SPACED_H
#define ILL_SPACED_H

#include "slots.h"

static size_t spaced_bytes(size_t each);

/* The memory from which the next slots of one size class are cut. */
struct pool {
    char *at;
    size_t left; /* bytes from `at` on */
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
