/* reused.h - reuses freed slots at once, the one that was freed last first. */
#ifndef ILL_REUSED_H
#define ILL_REUSED_H

#include "slots.h"

static struct slot *free_slots[SERVED_MAX / 16 + 1];

static struct slot *slot_find(size_t room)
{
    struct slot *slot = free_slots[room / 16];
    if (slot != NULL)
        free_slots[room / 16] = slot->next;
    return slot;
}

static void slot_free(struct slot *slot)
{
    slot->next = free_slots[slot->room / 16];
    free_slots[slot->room / 16] = slot;
}

#endif
