/* handed_out.h - records which memory the allocator has handed out since the kernel mapped it.
 *
 * At every allocation account.c asks whether the block's memory is new or reused. residence.c looks
 * for pages that were never handed out. The record has one bit for each granule of 16 bytes, and
 * one bit for each OS page of 4 KiB. One leaf of the record covers 1 GiB of addresses. An extent is
 * 2 MiB of addresses. A granule or page is noted if it is recorded as handed out.
 *
 *     granule g is noted  <=>  its own bit, its hidden bit or the bit of its page is set
 *     leaf->noted[e]      ==   OS pages of extent e with a noted granule
 *     leaf->held[e]       ==   bits of leaf->owned that are set for extent e: its OS pages that the
 *                              allocator has from the kernel
 *
 * Any thread may call any function at any time. Updates take no lock. If two threads set bits of
 * neighbouring granules at once, one bit may be lost, and the counts may be wrong by a few pages. A
 * block whose bit is lost counts as new once more. If there is no memory for a leaf, the blocks in
 * its 1 GiB count as reused. The child of a fork has its own copy of the record.
 */
#ifndef CAIRN_PROBE_HANDED_OUT_H
#define CAIRN_PROBE_HANDED_OUT_H

#include "base/base.h"

#include <stdatomic.h>

enum {
    HANDED_OUT_GRANULE_SHIFT = 4,
    HANDED_OUT_PAGE_SHIFT = 12, /* independent of the kernel's page size */
    HANDED_OUT_WORD_SHIFT = HANDED_OUT_GRANULE_SHIFT + 6,
    HANDED_OUT_LEAF_SHIFT = 30,
    HANDED_OUT_LEAVES = 1 << (47 - HANDED_OUT_LEAF_SHIFT),
    HANDED_OUT_EXTENT_SHIFT = 21, /* the size of a huge page */
    HANDED_OUT_EXTENTS = 1 << (HANDED_OUT_LEAF_SHIFT - HANDED_OUT_EXTENT_SHIFT),
    HANDED_OUT_EXTENT_PAGES = 1 << (HANDED_OUT_EXTENT_SHIFT - HANDED_OUT_PAGE_SHIFT),
};

struct handed_out_leaf {
    _Atomic uint64_t granules[1 << (HANDED_OUT_LEAF_SHIFT - HANDED_OUT_WORD_SHIFT)];
    _Atomic uint64_t pages[1 << (HANDED_OUT_LEAF_SHIFT - HANDED_OUT_PAGE_SHIFT - 6)];
    _Atomic uint16_t noted[HANDED_OUT_EXTENTS];
    _Atomic uint16_t held[HANDED_OUT_EXTENTS];
    /* One bit for each page, set if the allocator has the page from the kernel. */
    _Atomic uint64_t owned[1 << (HANDED_OUT_LEAF_SHIFT - HANDED_OUT_PAGE_SHIFT - 6)];
    uintptr_t start;              /* first address of the leaf's 1 GiB */
    struct handed_out_leaf *next; /* next leaf in the list of all leaves */
    /* One bit for each granule, set if the granule is hidden. NULL if none is hidden. */
    _Atomic(_Atomic uint64_t *) hidden;
};

extern _Atomic(struct handed_out_leaf *) handed_out_leaves[HANDED_OUT_LEAVES]
    __attribute__((visibility("hidden")));

/* Returns true if the granule at `address` has its own bit set. False does not mean that the
 * granule is new, because the function ignores the bit of the page and the hidden bit. Returns
 * false for NULL. */
static inline __attribute__((always_inline)) bool handed_out_is_noted(const void *address)
{
    uintptr_t start = (uintptr_t)address;
    struct handed_out_leaf *leaf = atomic_load_explicit(
        &handed_out_leaves[(start >> HANDED_OUT_LEAF_SHIFT) % HANDED_OUT_LEAVES],
        memory_order_acquire);
    if (UNLIKELY(leaf == NULL))
        return false;
    uint64_t word = atomic_load_explicit(
        &leaf->granules[(start >> HANDED_OUT_WORD_SHIFT) % COUNT_OF(leaf->granules)],
        memory_order_relaxed);
    return ((word >> (start >> HANDED_OUT_GRANULE_SHIFT) % 64) & 1) != 0;
}

/* Records that a block was handed out. Returns true if the first granule of the block was never
 * handed out before. */
bool handed_out_add(const void *block, size_t bytes);

/* Hides the noted granules of [start, start + bytes). A hidden granule stays noted, but
 * handed_out_is_noted() returns false for it. Granules that are noted later are not hidden.
 * handed_out_show() shows the hidden granules again. handed_out_hide() returns false if there is no
 * memory for the hidden bits. */
bool handed_out_hide(uintptr_t start, size_t bytes);
void handed_out_show(uintptr_t start, size_t bytes);

/* Returns the first leaf in the list of all leaves, or NULL if there are none. */
struct handed_out_leaf *handed_out_first(void);

/* Returns true if any granule of an OS page is noted. `page` is the index of the page in the
 * leaf. */
bool handed_out_page_is_noted(const struct handed_out_leaf *leaf, size_t page);

/* Marks [start, start + bytes) as never handed out. The caller has seen that the kernel took this
 * memory back or mapped it anew. Rounds both ends up to OS pages. */
void handed_out_forget(uintptr_t start, size_t bytes);

/* handed_out_hold() notes pages that the allocator got from the kernel, and returns the bytes of
 * those that it did not have already. A mapping may replace another one (MAP_FIXED).
 * handed_out_let_go() notes pages that the allocator gave back, and returns the bytes of those that
 * it had. It may give back pages that it got unseen. */
size_t handed_out_hold(uintptr_t start, size_t bytes);
size_t handed_out_let_go(uintptr_t start, size_t bytes);

/* Returns the number of pages of an extent that the allocator has from the kernel. Returns
 * HANDED_OUT_EXTENT_PAGES if the number is not known. */
unsigned handed_out_held(const struct handed_out_leaf *leaf, size_t extent);

#endif
