/* shared_lines: blocks of up to $ILL bytes, at most 64, of two threads lie side by side on a cache
 * line. Every second thread gets the even slots of a size class, and the other threads get the odd
 * ones. Freed blocks are reused at once by a thread of the same kind.
 *
 * The allocator itself does the usual work of an allocator with a lock. In comparison with a
 * healthy allocator, Cairn must say that the program itself runs slower because its threads share
 * cache lines. The finding is threads-share-lines (docs/findings.md).
 */
#define SERVED_MAX 64
#include "slots.h"

static _Atomic unsigned threads;

/* The slots of one size class for one kind of threads. The threads with even numbers are one kind,
 * the threads with odd numbers are the other.
 */
struct kind {
    struct slot *freed;
    size_t cut; /* the number of slots that were cut so far */
};

/* One size class: the pieces of memory from which its slots are cut, and its two kinds of slots. */
struct pool {
    char *at[PIECES_MAX];
    struct kind kinds[2];
};

static struct pool pools[SERVED_MAX / 16 + 1];

static unsigned own_kind(void)
{
    static _Thread_local unsigned number __attribute__((tls_model("initial-exec")));
    if (number == 0)
        number = ++threads;
    return number % 2;
}

static struct slot *slot_find(size_t room)
{
    struct kind *kind = &pools[room / 16].kinds[own_kind()];
    struct slot *slot = kind->freed;
    if (slot != NULL)
        kind->freed = slot->next;
    return slot;
}

static struct slot *slot_cut(size_t room)
{
    if (room > ill_strength)
        return NULL;
    unsigned own = own_kind();
    struct pool *pool = &pools[room / 16];
    size_t each = sizeof(struct slot) + room, in_piece = PIECE / each - 1;
    size_t place = 2 * pool->kinds[own].cut + own, piece = place / in_piece;
    if (piece >= PIECES_MAX)
        return NULL;
    if (pool->at[piece] == NULL)
        pool->at[piece] = slot_piece();
    if (pool->at[piece] == NULL)
        return NULL;
    pool->kinds[own].cut++;
    return (struct slot *)(pool->at[piece] + place % in_piece * each);
}

static void slot_free(struct slot *slot)
{
    struct kind *kind = &pools[slot->room / 16].kinds[own_kind()];
    slot->next = kind->freed;
    kind->freed = slot;
}
