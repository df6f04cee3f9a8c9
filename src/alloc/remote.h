/* remote.h - frees by threads that do not own the slab: one atomic word per slab.
 *
 * A thread that frees a block of another owner's slab posts the block: it pushes the block onto a
 * list in the slab, from which the owner later collects it. The atomic word holds the first posted
 * block, the number of posted blocks, and the state of the slab:
 *
 *     CURRENT   the owner's heap allocates from it; it is on no list
 *     PARKED    on the owner's list for its class: it may have room
 *     FULL      on the owner's list of full slabs: the owner ignores it until blocks come back
 *     CLAIMED   on its way to the page heap, or to the runs that the owner's thread keeps
 *
 * States change under the lock of the owner's heap (heap.h). A post is one compare-and-swap without
 * a lock, except in two cases:
 *
 * - An eighth of the blocks of a FULL slab, at least one, are posted. The slab becomes PARKED, so
 *   that the owner's next refill finds it.
 * - The last live block of a slab that is not CURRENT is posted. No other thread can touch the slab
 *   any more. The slab becomes CLAIMED and leaves its list, and its run goes back to the page heap,
 *   even if the owner sleeps.
 *
 * In these cases the poster takes the lock of the owner's heap and reads the owner and the word
 * again, because both may have changed.
 *
 * A slab can be claimed if, under the lock of the owner's heap,
 *
 *     slab_live() == number of posted blocks, and until != 0
 *
 * If `until` is 0, the owner is on its way to heap_event() and claims the slab itself. A local free
 * does not look at the posted blocks. If a local free comes last, or at the same moment as the last
 * post, no thread claims the slab at once. The slab then stays on its list until the owner's next
 * refill or exit, or a sweep (heap.h), finds it.
 */
#ifndef CAIRN_ALLOC_REMOTE_H
#define CAIRN_ALLOC_REMOTE_H

#include "alloc/slab.h"

enum remote_state { REMOTE_CURRENT, REMOTE_PARKED, REMOTE_FULL, REMOTE_CLAIMED };

/* The bits of the word, from the lowest up: the place of the first posted block, the number of
 * posted blocks, the state, and how often the state was set. The last number makes a
 * compare-and-swap fail if its thread read the word before the state was set. */
enum { REMOTE_FIRST_BITS = 20, REMOTE_COUNT_BITS = 20, REMOTE_STATE_BITS = 3 };

#define REMOTE_FIRST_MASK ((UINT64_C(1) << REMOTE_FIRST_BITS) - 1)
#define REMOTE_POSTS_MASK ((UINT64_C(1) << (REMOTE_FIRST_BITS + REMOTE_COUNT_BITS)) - 1)

/* Returns the place of a block `offset` bytes behind the slab's start: 1 or more. The place 0 means
 * no block. */
static inline uint64_t remote_place(size_t offset)
{
    return offset / 16 + 1;
}

/* Returns the block at a place, or NULL for the place 0. */
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

/* Returns whether `more` blocks can be posted without the heap's lock. They must not include the
 * last live block of the slab, and must not give a FULL slab enough room to be parked. */
static inline bool remote_is_plain(struct slab *slab, uint64_t word, uint32_t more)
{
    uint32_t count = remote_count_of(word) + more;
    enum remote_state state = remote_state_of(word);
    if (state == REMOTE_CURRENT)
        return true;
    if (state == REMOTE_FULL && count >= (uint32_t)slab->capacity / 8)
        return false;
    return state != REMOTE_CLAIMED && count < slab_live(slab);
}

/* Posts a block that begins `offset` bytes behind the slab's start, where `last` == slab_key(block,
 * NULL). Returns false if the block was not posted, because another thread changed the word or
 * because the heap's lock is needed. The caller then calls heap_post(). */
static inline bool remote_post_quick(struct slab *slab, struct block *block, size_t offset,
                                     uintptr_t last)
{
    uint64_t word = atomic_load_explicit(&slab->posted, memory_order_acquire);
    if (UNLIKELY(!remote_is_plain(slab, word, 1)))
        return false;
    uint64_t first = word & REMOTE_FIRST_MASK;
    slab_mark_by(block, remote_block((char *)block - offset, first), last);
    uint64_t posted = word - first + (UINT64_C(1) << REMOTE_FIRST_BITS) + remote_place(offset);
    return atomic_compare_exchange_strong_explicit(
        &slab->posted, &word, posted,
        memory_order_acq_rel, /* publishes block->next to remote_collect() */
        memory_order_acquire);
}

/* The result of a post. */
enum remote_post {
    REMOTE_POSTED,
    REMOTE_WAKES, /* a FULL slab has room again */
    REMOTE_LAST,  /* the posted blocks may include the last live one */
};

/* Posts `count` blocks, which are linked from `first` to `last` and, except for `last`, marked as
 * free. Returns REMOTE_POSTED. If the lock of the owner's heap is needed, returns one of the other
 * results and does not post the blocks. The caller then calls remote_post_locked() under that lock.
 * A block of a CLAIMED slab ends the program, because the block was freed twice. */
enum remote_post remote_post(struct slab *slab, struct block *first, struct block *last,
                             uint32_t count);

/* Posts the blocks in any case, under the lock of the owner's heap. The result says what the caller
 * must do now (enum remote_post). */
enum remote_post remote_post_locked(struct slab *slab, struct block *first, struct block *last,
                                    uint32_t count);

/* Takes all posted blocks. Returns the first of them and sets `*count` to their number. The blocks
 * still count as live, and belong to the caller. The caller is the owner, or holds the lock of the
 * owner's heap while no thread allocates from the slab. */
struct block *remote_collect(struct slab *slab, uint32_t *count);

/* Sets the state. The caller holds the lock of the owner's heap. Other threads may post
 * meanwhile. */
void remote_set_state(struct slab *slab, enum remote_state state);

/* Called under the lock of the owner's heap after slab_live() has changed. Sets the state to the
 * state that the slab has, which changes the word. So the compare-and-swap of a thread that is
 * about to post a block fails, and the thread reads slab_live() again. */
static inline void remote_look_again(struct slab *slab)
{
    remote_set_state(slab,
                     remote_state_of(atomic_load_explicit(&slab->posted, memory_order_relaxed)));
}

static inline enum remote_state remote_state(struct slab *slab)
{
    return remote_state_of(atomic_load_explicit(&slab->posted, memory_order_relaxed));
}

/* Returns whether `slab` is the record of a slab at this moment, and not on its way to or from the
 * page heap. While the locks of all heaps are held, the answer does not change. */
static inline bool remote_is_slab(struct slab *slab)
{
    bool owned = atomic_load_explicit(&slab->owner, memory_order_acquire) != NULL;
    /* Acquires what slab_create() published. */
    bool is_slab = atomic_load_explicit(&slab->kind, memory_order_acquire) == RUN_SLAB;
    return is_slab && owned && remote_state(slab) != REMOTE_CLAIMED;
}

/* Returns whether the slab can be claimed: every live block is posted, and the owner is not on its
 * way to heap_event(). The caller holds the lock of the owner's heap. If the result is true, no
 * other thread can touch the slab. */
bool remote_has_all(struct slab *slab);

#endif
