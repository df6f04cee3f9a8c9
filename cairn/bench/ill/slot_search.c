/* slot_search: every malloc and free first reads $ILL slots, like an allocator that searches for a
 * free slot.
 *
 * In comparison with the allocator behind this library, Cairn must report the finding slow-path.
 */
#include "ill.h"

enum { SLOTS_MOST = 4096 };

static void look(void)
{
    static volatile unsigned char slots[SLOTS_MOST];
    unsigned long most = ill_strength < SLOTS_MOST ? ill_strength : SLOTS_MOST;
    for (unsigned long i = 0; i < most && slots[i] == 0; i++)
        ;
}

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
    look();
}

static int ill_frees(void *block)
{
    (void)block;
    look();
    return 1;
}
