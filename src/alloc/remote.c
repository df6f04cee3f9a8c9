#include "alloc/remote.h"

#include "alloc/broken.h"

enum { STATE_SHIFT = REMOTE_FIRST_BITS + REMOTE_COUNT_BITS, SET_SHIFT = STATE_SHIFT + REMOTE_STATE_BITS };

static uint32_t place_of(struct slab *slab, const struct block *block)
{
    return (uint32_t)((size_t)((const char *)block - slab_start(slab)) / 16) + 1;
}

static struct block *block_at(struct slab *slab, uint32_t place)
{
    return place == 0 ? NULL : (struct block *)(slab_start(slab) + (size_t)(place - 1) * 16);
}

static enum remote_post wants(struct slab *slab, uint64_t word)
{
    uint32_t count = remote_count_of(word) + 1;
    enum remote_state state = remote_state_of(word);
    if (state == REMOTE_CURRENT)
        return REMOTE_POSTED;
    if (state == REMOTE_CLAIMED)
        broken("a block is freed twice, the last time by another thread", slab_start(slab));
    if (count >= slab_live(slab))
        return REMOTE_LAST;
    if (state == REMOTE_FULL && count >= (uint32_t)slab->capacity / 8)
        return REMOTE_WAKES;
    return REMOTE_POSTED;
}

static bool push(struct slab *slab, struct block *block, uint64_t *word)
{
    slab_mark(block, block_at(slab, (uint32_t)*word & ((1u << REMOTE_FIRST_BITS) - 1)));
    uint64_t posted = (*word & ~REMOTE_POSTS_MASK) |
                      (uint64_t)(remote_count_of(*word) + 1) << REMOTE_FIRST_BITS | place_of(slab, block);
    return atomic_compare_exchange_weak_explicit(
        &slab->posted, word, posted, memory_order_acq_rel, /* publishes block->next to remote_collect() */
        memory_order_acquire);
}

enum remote_post remote_post(struct slab *slab, struct block *block)
{
    uint64_t word = atomic_load_explicit(&slab->posted, memory_order_acquire);
    for (;;) {
        enum remote_post wanted = wants(slab, word);
        if (wanted != REMOTE_POSTED || push(slab, block, &word))
            return wanted;
    }
}

enum remote_post remote_post_locked(struct slab *slab, struct block *block)
{
    uint64_t word = atomic_load_explicit(&slab->posted, memory_order_acquire);
    for (;;) {
        enum remote_post wanted = wants(slab, word);
        if (push(slab, block, &word))
            return wanted;
    }
}

struct block *remote_collect(struct slab *slab, uint32_t *count)
{
    uint64_t word = atomic_load_explicit(&slab->posted, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&slab->posted, &word, word & ~REMOTE_POSTS_MASK,
                                                  memory_order_acquire, /* sees what push() published */
                                                  memory_order_relaxed)) {
    }
    *count = remote_count_of(word);
    return block_at(slab, (uint32_t)word & ((1u << REMOTE_FIRST_BITS) - 1));
}

void remote_set_state(struct slab *slab, enum remote_state state)
{
    uint64_t word = atomic_load_explicit(&slab->posted, memory_order_relaxed);
    uint64_t changed;
    do
        changed = (word & REMOTE_POSTS_MASK) | ((word >> SET_SHIFT) + 1) << SET_SHIFT |
                  (uint64_t)state << STATE_SHIFT;
    while (!atomic_compare_exchange_weak_explicit(&slab->posted, &word, changed, memory_order_acq_rel,
                                                  memory_order_relaxed));
}

bool remote_has_all(struct slab *slab)
{
    uint32_t count = remote_count_of(atomic_load_explicit(&slab->posted, memory_order_acquire));
    uint32_t until = atomic_load_explicit(
        &slab->until, memory_order_acquire); /* read once: what was freed before is seen by the claimer */
    if (until == 0)
        return false; /* nothing is live, or the owner is between its local free and heap_event() */
    return count > 0 && count == until + atomic_load_explicit(&slab->rest, memory_order_relaxed);
}
