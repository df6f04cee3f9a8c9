/* remote.h - blocks that other threads than the owner's give back: one atomic word per slab.
 *
 * The word holds the first posted block, how many there are, and the state of the slab:
 *
 *     CURRENT   the owner's heap allocates from it; on no list
 *     PARKED    on the owner's list for its class: there may be room in it
 *     FULL      on the owner's list of full slabs: nobody looks at it until something comes back
 *     CLAIMED   on its way back to the page heap, or to the runs that its thread keeps
 *
 * States change under the lock of the owner's heap (heap.h). A post is one compare-and-swap without a lock, but for two
 * that find something to do:
 *
 *     an eighth of a FULL slab, or one block where that is none, is posted: it is PARKED, so that the owner's next refill finds it
 *     the last live block of a slab that is not CURRENT is posted: nobody else can touch the slab any more. It is
 *     CLAIMED, taken off its list, and its run goes back, however long the owner sleeps
 *
 * For these the poster takes the lock, and looks at owner and word again, since both may have changed.
 *
 * What is claimed is decided by slab_live() == posted, under the lock, and while `until` is not 0: at 0 the owner is on
 * its way to heap_event(), and the claim is its own. A local free does not look at what is posted, so that one which
 * comes last, or at the same moment as the last post, leaves the slab on its list until the owner's next refill or exit,
 * or a sweep (heap.h), finds it.
 */
#ifndef CAIRN_ALLOC_REMOTE_H
#define CAIRN_ALLOC_REMOTE_H

#include "alloc/slab.h"

enum remote_state { REMOTE_CURRENT, REMOTE_PARKED, REMOTE_FULL, REMOTE_CLAIMED };

/* The word. `first` is the offset of a block from the slab's start in 16 bytes, plus 1; 0: none. In the bits above the state
 * is how often that was set, so that a post that was decided before fails. */
enum { REMOTE_FIRST_BITS = 20, REMOTE_COUNT_BITS = 20, REMOTE_STATE_BITS = 3 };

#define REMOTE_FIRST_MASK ((UINT64_C(1) << REMOTE_FIRST_BITS) - 1)
#define REMOTE_POSTS_MASK ((UINT64_C(1) << (REMOTE_FIRST_BITS + REMOTE_COUNT_BITS)) - 1)

static inline uint64_t remote_place(size_t offset)
{
    return offset / 16 + 1;
}

/* NULL: none. */
static inline struct block *remote_block(char *start, uint64_t place)
{
    return place == 0 ? NULL : (struct block *)(start + (place - 1) * 16);
}

static inline enum remote_state remote_state_of(uint64_t word)
{
    return (enum remote_state)(word >> (REMOTE_FIRST_BITS + REMOTE_COUNT_BITS) &
                               ((1u << REMOTE_STATE_BITS) - 1));
}

static inline uint32_t remote_count_of(uint64_t word)
{
    return (uint32_t)(word >> REMOTE_FIRST_BITS) & ((1u << REMOTE_COUNT_BITS) - 1);
}

/* Whether one block more may be posted and nothing is to be done for it: neither has the slab room again nor can it be the
 * last live block. */
static inline bool remote_is_plain(struct slab *slab, uint64_t word)
{
    uint32_t count = remote_count_of(word) + 1;
    enum remote_state state = remote_state_of(word);
    if (state == REMOTE_CURRENT)
        return true;
    if (state == REMOTE_FULL && count >= (uint32_t)slab->capacity / 8)
        return false;
    return state != REMOTE_CLAIMED && count < slab_live(slab);
}

/* Posts a block that begins `offset` bytes behind the slab's start and whose slab_key(block, NULL) is `last`, as
 * remote_post() does. False: not at once, or not without the lock, and remote_post() is to be asked. */
static inline bool remote_post_quick(struct slab *slab, struct block *block, size_t offset,
                                     uintptr_t last)
{
    uint64_t word = atomic_load_explicit(&slab->posted, memory_order_acquire);
    if (UNLIKELY(!remote_is_plain(slab, word)))
        return false;
    uint64_t first = word & REMOTE_FIRST_MASK;
    slab_mark_by(block, remote_block((char *)block - offset, first), last);
    uint64_t posted = word - first + (UINT64_C(1) << REMOTE_FIRST_BITS) + remote_place(offset);
    return atomic_compare_exchange_strong_explicit(
        &slab->posted, &word, posted,
        memory_order_acq_rel, /* publishes block->next to remote_collect() */
        memory_order_acquire);
}

/* What a post came to. */
enum remote_post {
    REMOTE_POSTED,
    REMOTE_WAKES, /* not posted: a FULL slab has room again; post it under the lock with remote_post_locked() */
    REMOTE_LAST, /* not posted: it may be the last live block; likewise */
};

/* Posts a block, whose contents are then the list's, unless that asks for the lock. */
enum remote_post remote_post(struct slab *slab, struct block *block);

/* The same under the lock of the list that the slab is on: posts in any case, and tells what is to be done now. */
enum remote_post remote_post_locked(struct slab *slab, struct block *block);

/* (own, or under the lock with nobody else allocating) Takes all posted blocks: the list, and how many. They count as
 * live, and belong to the caller. */
struct block *remote_collect(struct slab *slab, uint32_t *count);

/* Under the lock: sets the state, whatever is posted meanwhile. */
void remote_set_state(struct slab *slab, enum remote_state state);

/* Under the lock, after slab_live() has changed for good: whoever is about to post looks at it again. */
static inline void remote_look_again(struct slab *slab)
{
    remote_set_state(slab,
                     remote_state_of(atomic_load_explicit(&slab->posted, memory_order_relaxed)));
}

static inline enum remote_state remote_state(struct slab *slab)
{
    return remote_state_of(atomic_load_explicit(&slab->posted, memory_order_relaxed));
}

/* Whether the record is that of a slab just now; what is on its way to or from the page heap is none. With all locks held
 * it stays one. */
static inline bool remote_is_slab(struct slab *slab)
{
    bool owned = atomic_load_explicit(&slab->owner, memory_order_acquire) != NULL;
    bool is_slab = atomic_load_explicit(&slab->kind, memory_order_acquire) ==
                   RUN_SLAB; /* sees slab_create() */
    return is_slab && owned && remote_state(slab) != REMOTE_CLAIMED;
}

/* Under the lock: whether every live block is posted and the owner is not on its way to heap_event(), so that nobody
 * can touch the slab but who holds the lock. */
bool remote_has_all(struct slab *slab);

#endif
