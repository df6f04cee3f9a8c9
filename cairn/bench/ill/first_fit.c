/* first_fit: all free blocks of up to 16 KiB are in one list, oldest first. A malloc takes the
 * first block of the list that fits, and searches at most $ILL of them.
 *
 * In comparison with a healthy allocator, Cairn must report the finding slow-reuse.
 */
#define SERVED_MAX (16 << 10)
#include "slots.h"

static struct slot *first, **end = &first;
static char *rest, *rest_end;

static struct slot *slot_find(size_t room)
{
    struct slot **at = &first;
    for (unsigned long i = 0; i < ill_strength && *at != NULL; i++, at = &(*at)->next) {
        struct slot *slot = *at;
        if (slot->room < room || slot->room > room + room / 8 + 16)
            continue;
        *at = slot->next;
        if (end == &slot->next)
            end = at;
        return slot;
    }
    return NULL;
}

static struct slot *slot_cut(size_t room)
{
    if ((size_t)(rest_end - rest) < sizeof(struct slot) + room) {
        rest = slot_piece();
        rest_end = rest == NULL ? NULL : rest + PIECE;
        if (rest == NULL)
            return NULL;
    }
    struct slot *slot = (struct slot *)rest;
    rest += sizeof *slot + room;
    return slot;
}

static void slot_free(struct slot *slot)
{
    slot->next = NULL;
    *end = slot;
    end = &slot->next;
}
