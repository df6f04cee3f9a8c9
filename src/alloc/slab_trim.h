/* slab_trim.h - gives OS pages of a slab back to the machine if no block on them is live.
 *
 * A free block holds its link and its key (slab.h), so a page cannot be given back while a free
 * block begins on it. slab_trim() therefore takes such blocks off the slab's list `free`. They are
 * then hidden: they are free, and have no memory. Each bit of `away` stands for one OS page of the
 * slab, from the lowest up. Between calls, always:
 *
 *     a carved block is hidden if and only if the page on which it begins is away
 *     away == 0, unless the state of the slab is CURRENT or PARKED
 *     PARKED:  carved - slab_live() == length(free) + number of hidden blocks
 *     CURRENT: carved - slab_live() == length(free): hidden blocks count as live
 *
 * So the owner steals the list `free` of a CURRENT slab without a look at `away`, and a PARKED slab
 * is empty if slab_live() is 0. The owner brings hidden blocks back before it carves new ones, one
 * page at a time.
 *
 * A hidden block has no key that marks it as free. While a page is away, `bound` is therefore 0, so
 * that every free of a block of the slab leaves the fast path (alloc.h), and the slow path notices
 * if a hidden block is freed again.
 *
 * The caller of every function is the owner of the slab, or holds the lock of the slab's heap while
 * no thread allocates from it. The hardened build trims nothing, because its free blocks have
 * canaries.
 */
#ifndef CAIRN_ALLOC_SLAB_TRIM_H
#define CAIRN_ALLOC_SLAB_TRIM_H

#include "alloc/slab.h"

/* Gives back the pages of a PARKED slab on which no block is live. Returns the bytes given back.
 * The caller holds the lock of the slab's heap. Ends the program if a free block was written to. */
size_t slab_trim(struct slab *slab);

/* Brings the hidden blocks of one page back, links them in the order of their addresses and sets
 * `*count` to their number. Returns the first of them, or NULL if no page is away. The slab is
 * CURRENT, so the blocks count as live. */
struct block *slab_restore(struct slab *slab, uint32_t *count);

/* slab_count_hidden() counts the hidden blocks as live, because the slab becomes CURRENT.
 * slab_uncount_hidden() ends that. */
void slab_count_hidden(struct slab *slab);
void slab_uncount_hidden(struct slab *slab);

#endif
