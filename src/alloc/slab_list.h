/* slab_list.h - a list of runs, linked by the slice indices in their records.
 *
 * A list is the slice index of its first run, or 0. A run is on one list at most. The lock of the
 * heap that the list belongs to guards the list.
 */
#ifndef CAIRN_ALLOC_SLAB_LIST_H
#define CAIRN_ALLOC_SLAB_LIST_H

#include "alloc/slab.h"

/* Puts the run, which is on no list, in front of the list. */
static inline void slab_list_add(uint32_t *first, struct slab *slab)
{
    uint32_t index = (uint32_t)slab_index(slab);
    slab->prev = 0;
    slab->next = *first;
    if (*first != 0)
        slab_at(*first)->prev = index;
    *first = index;
}

/* Takes the run off the list that it is on. */
static inline void slab_list_remove(uint32_t *first, struct slab *slab)
{
    if (slab->next != 0)
        slab_at(slab->next)->prev = slab->prev;
    if (slab->prev != 0)
        slab_at(slab->prev)->next = slab->next;
    else
        *first = slab->next;
    slab->next = slab->prev = 0;
}

#endif
