#include "probe/owners.h"

#include "probe/direct_syscall.h"
#include "probe/own_memory.h"

#include <stdatomic.h>

/* A word holds the size group in its two lowest bits, and the number of the thread in the bits
 * above. */
enum { GRANULE_SHIFT = 4, LEAF_SHIFT = 26, LEAVES = 1 << (47 - LEAF_SHIFT), GROUP_SHIFT = 2 };

struct leaf {
    _Atomic uint32_t words[1 << (LEAF_SHIFT - GRANULE_SHIFT)];
};

static _Atomic(struct leaf *) leaves[LEAVES];

/* Returns the word of a block. Creates the leaf of the word if there is none. Returns NULL if there
 * is no memory for the leaf. */
static _Atomic uint32_t *word_of(const void *block)
{
    uintptr_t start = (uintptr_t)block;
    _Atomic(struct leaf *) *place = &leaves[(start >> LEAF_SHIFT) % LEAVES];
    struct leaf *leaf = atomic_load_explicit(place, memory_order_acquire);
    if (leaf == NULL) {
        struct leaf *other = NULL;
        leaf = own_memory_map_sparse(sizeof *leaf);
        if (leaf == NULL)
            return NULL;
        if (!atomic_compare_exchange_strong(place, &other, leaf)) {
            direct_call3(SYS_munmap, (long)leaf, sizeof *leaf, 0);
            leaf = other;
        }
    }
    return &leaf->words[(start >> GRANULE_SHIFT) % COUNT_OF(leaf->words)];
}

void owners_unused(void)
{
    own_memory_leave_out(leaves, sizeof leaves);
}

void owners_note(const void *block, struct owner owner)
{
    _Atomic uint32_t *word = word_of(block);
    if (word != NULL)
        atomic_store_explicit(word, owner.thread << GROUP_SHIFT | (uint32_t)owner.group,
                              memory_order_relaxed);
}

struct owner owners_take(const void *block)
{
    _Atomic uint32_t *word = word_of(block);
    uint32_t found = word != NULL ? atomic_exchange_explicit(word, 0, memory_order_relaxed) : 0;
    return (struct owner){.thread = found >> GROUP_SHIFT,
                          .group = (enum profile_group)(found & ((1 << GROUP_SHIFT) - 1))};
}
