/* shadow.h - which memory was handed out since the kernel gave it: one bit for 16 bytes, one for each OS page.
 *
 * Any thread may call anything at any time. Two that note neighbours at once may lose one of the notes; that block
 * then counts as new once more. What cannot be noted, for want of memory, counts as reused.
 *
 *     memory is noted    <=>  its bit is set, or that of its page
 *     noted[e] of a leaf is how many OS pages of its extent e hold noted memory, and held[e] how many the allocator has from
 *         the kernel; both may be off by what two threads did at once
 *     a fork's child has its own copy
 */
#ifndef CAIRN_PROBE_SHADOW_H
#define CAIRN_PROBE_SHADOW_H

#include "base/base.h"

#include <stdatomic.h>

enum {
    SHADOW_GRANULE_SHIFT = 4,
    SHADOW_PAGE_SHIFT = 12, /* whatever the kernel's are */
    SHADOW_WORD_SHIFT = SHADOW_GRANULE_SHIFT + 6,
    SHADOW_LEAF_SHIFT = 30,
    SHADOW_LEAVES = 1 << (47 - SHADOW_LEAF_SHIFT),
    SHADOW_EXTENT_SHIFT = 21, /* a huge page */
    SHADOW_EXTENTS = 1 << (SHADOW_LEAF_SHIFT - SHADOW_EXTENT_SHIFT),
    SHADOW_EXTENT_PAGES = 1 << (SHADOW_EXTENT_SHIFT - SHADOW_PAGE_SHIFT),
};

struct shadow_leaf {
    _Atomic uint64_t granules[1 << (SHADOW_LEAF_SHIFT - SHADOW_WORD_SHIFT)];
    _Atomic uint64_t pages[1 << (SHADOW_LEAF_SHIFT - SHADOW_PAGE_SHIFT - 6)];
    _Atomic uint16_t noted[SHADOW_EXTENTS];
    _Atomic uint16_t held[SHADOW_EXTENTS];
    uintptr_t start; /* the address that it begins at */
    struct shadow_leaf *next;
};

extern _Atomic(struct shadow_leaf *) shadow_leaves[SHADOW_LEAVES]
    __attribute__((visibility("hidden")));

/* Was what lies at an address handed out before? False where that is not quickly told; and for NULL. */
static inline __attribute__((always_inline)) bool shadow_is_noted(const void *address)
{
    uintptr_t start = (uintptr_t)address;
    struct shadow_leaf *leaf = atomic_load_explicit(
        &shadow_leaves[(start >> SHADOW_LEAF_SHIFT) % SHADOW_LEAVES], memory_order_acquire);
    if (UNLIKELY(leaf == NULL))
        return false;
    uint64_t word = atomic_load_explicit(
        &leaf->granules[(start >> SHADOW_WORD_SHIFT) % COUNT_OF(leaf->granules)],
        memory_order_relaxed);
    return ((word >> (start >> SHADOW_GRANULE_SHIFT) % 64) & 1) != 0;
}

/* Notes that a block was handed out. Was its beginning new? */
bool shadow_hand_out(const void *block, size_t bytes);

/* The first of all leaves; their `next` leads to the others. */
struct shadow_leaf *shadow_first(void);

/* Is anything of an OS page of the leaf noted? `page` counts from its beginning. */
bool shadow_page_is_noted(const struct shadow_leaf *leaf, size_t page);

/* The kernel has it back, or gives it anew: new again. */
void shadow_forget(uintptr_t start, size_t bytes);

/* The allocator has pages from the kernel, or gives them back. */
void shadow_hold(uintptr_t start, size_t bytes);
void shadow_let_go(uintptr_t start, size_t bytes);

/* How many pages of an extent the allocator has; SHADOW_EXTENT_PAGES where that is not known. */
unsigned shadow_held(const struct shadow_leaf *leaf, size_t extent);

#endif
