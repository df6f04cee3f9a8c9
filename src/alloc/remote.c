#include "alloc/remote.h"

#include "alloc/broken.h"

enum {
    STATE_SHIFT = REMOTE_FIRST_BITS + REMOTE_COUNT_BITS,
    SET_SHIFT = STATE_SHIFT + REMOTE_STATE_BITS
};

/* Returns the result of posting `count` blocks, one of which is `block`, to a slab whose word is
 * `word`. Ends the program if the slab is CLAIMED. */
static enum remote_post wants(struct slab *slab, const struct block *block, uint32_t count,
                              uint64_t word)
{
    if (remote_is_plain(slab, word, count))
        return REMOTE_POSTED;
    if (remote_state_of(word) == REMOTE_CLAIMED)
        slab_misused("a block is freed twice, the last time by another thread", block);
    return remote_count_of(word) + count >= slab_live(slab) ? REMOTE_LAST : REMOTE_WAKES;
}

/* Tries once to post blocks. Returns false and updates `*word` if the word has changed. May also
 * return false without a reason, because the compare-and-swap is weak. */
static bool push(struct slab *slab, struct block *first, struct block *last, uint32_t count,
                 uint64_t *word)
{
    char *start = slab_start(slab);
    uint64_t before = *word & REMOTE_FIRST_MASK;
    slab_mark(last, remote_block(start, before));
    uint64_t posted = *word - before + ((uint64_t)count << REMOTE_FIRST_BITS) +
                      remote_place((size_t)((char *)first - start));
    return atomic_compare_exchange_weak_explicit(
        &slab->posted, word, posted,
        memory_order_acq_rel, /* publishes the links to remote_collect() */
        memory_order_acquire);
}

enum remote_post remote_post(struct slab *slab, struct block *first, struct block *last,
                             uint32_t count)
{
    uint64_t word = atomic_load_explicit(&slab->posted, memory_order_acquire);
    for (;;) {
        enum remote_post wanted = wants(slab, first, count, word);
        if (wanted != REMOTE_POSTED || push(slab, first, last, count, &word))
            return wanted;
    }
}

enum remote_post remote_post_locked(struct slab *slab, struct block *first, struct block *last,
                                    uint32_t count)
{
    uint64_t word = atomic_load_explicit(&slab->posted, memory_order_acquire);
    for (;;) {
        enum remote_post wanted = wants(slab, first, count, word);
        if (push(slab, first, last, count, &word))
            return wanted;
    }
}

struct block *remote_collect(struct slab *slab, uint32_t *count)
{
    uint64_t word = atomic_load_explicit(&slab->posted, memory_order_relaxed);
    if ((word & REMOTE_POSTS_MASK) ==
        0) { /* nothing was posted; this needs no locked instruction */
        *count = 0;
        return NULL;
    }
    while (!atomic_compare_exchange_weak_explicit(
        &slab->posted, &word, word & ~REMOTE_POSTS_MASK,
        memory_order_acquire, /* sees what push() published */
        memory_order_relaxed)) {
    }
    *count = remote_count_of(word);
    return remote_block(slab_start(slab), word & REMOTE_FIRST_MASK);
}

void remote_set_state(struct slab *slab, enum remote_state state)
{
    uint64_t word = atomic_load_explicit(&slab->posted, memory_order_relaxed);
    uint64_t changed;
    do
        changed = (word & REMOTE_POSTS_MASK) | ((word >> SET_SHIFT) + 1) << SET_SHIFT |
                  (uint64_t)state << STATE_SHIFT;
    while (!atomic_compare_exchange_weak_explicit(&slab->posted, &word, changed,
                                                  memory_order_acq_rel, memory_order_relaxed));
}

bool remote_has_all(struct slab *slab)
{
    uint32_t count = remote_count_of(atomic_load_explicit(&slab->posted, memory_order_acquire));
    /* `until` is read only once. Acquire order lets the claimer see the local frees that `until`
     * counts. */
    uint32_t until = atomic_load_explicit(&slab->until, memory_order_acquire);
    if (until == 0)
        return false; /* no live block, or the owner will call heap_event() */
    return count > 0 && count == until + atomic_load_explicit(&slab->rest, memory_order_relaxed);
}
