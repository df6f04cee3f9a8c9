#include "probe/shadow.h"

#include "probe/stub.h"

#include <string.h>

_Atomic(struct shadow_leaf *) shadow_leaves[SHADOW_LEAVES];
static _Atomic(struct shadow_leaf *) leaves;

#define LEAF_BYTES   ((uintptr_t)1 << SHADOW_LEAF_SHIFT)
#define PAGE_BYTES   ((uintptr_t)1 << SHADOW_PAGE_SHIFT)
#define LARGE_BYTES  (8 * PAGE_BYTES) /* from here on whole pages are noted as such */
#define GRANULE_BITS SHADOW_GRANULE_SHIFT

enum act { SET, CLEAR };

static struct shadow_leaf *leaf_of(uintptr_t address, bool make)
{
    _Atomic(struct shadow_leaf *) *place = &shadow_leaves[(address >> SHADOW_LEAF_SHIFT) % SHADOW_LEAVES];
    struct shadow_leaf *leaf = atomic_load_explicit(place, memory_order_acquire);
    if (leaf != NULL || !make)
        return leaf;
    leaf = stub_map(sizeof *leaf);
    if (leaf == NULL)
        return NULL;
    leaf->start = address & ~(LEAF_BYTES - 1);
    struct shadow_leaf *other = NULL;
    if (!atomic_compare_exchange_strong(place, &other, leaf)) {
        stub_call3(SYS_munmap, (long)leaf, sizeof *leaf, 0);
        return other;
    }
    leaf->next = atomic_load_explicit(&leaves, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&leaves, &leaf->next, leaf, memory_order_release,
                                                  memory_order_relaxed))
        ;
    return leaf;
}

struct shadow_leaf *shadow_first(void)
{
    return atomic_load_explicit(&leaves, memory_order_acquire);
}

bool shadow_page_is_noted(const struct shadow_leaf *leaf, size_t page)
{
    enum { WORDS = 1 << (SHADOW_PAGE_SHIFT - SHADOW_WORD_SHIFT) };
    uint64_t any = atomic_load_explicit(&leaf->pages[page / 64], memory_order_relaxed) >> page % 64 & 1;
    for (size_t i = 0; i < WORDS; i++)
        any |= atomic_load_explicit(&leaf->granules[page * WORDS + i], memory_order_relaxed);
    return any != 0;
}

/* Of the pages of [from, to), which are as `noted` says, the extents count one more or less. */
static void count_pages(struct shadow_leaf *leaf, uintptr_t from, uintptr_t to, bool noted, int16_t more)
{
    for (size_t page = from >> SHADOW_PAGE_SHIFT; page <= (to - 1) >> SHADOW_PAGE_SHIFT; page++)
        if (shadow_page_is_noted(leaf, page) == noted)
            atomic_fetch_add_explicit(&leaf->noted[page / SHADOW_EXTENT_PAGES], (uint16_t)more,
                                      memory_order_relaxed);
}

/* Bits `first` … `last - 1` of a bitmap. */
static void change(_Atomic uint64_t *words, size_t first, size_t last, enum act act)
{
    for (size_t bit = first; bit < last;) {
        size_t offset = bit % 64;
        size_t count = last - bit < 64 - offset ? last - bit : 64 - offset;
        uint64_t mask = (count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1) << offset;
        _Atomic uint64_t *word = &words[bit / 64];
        uint64_t old = atomic_load_explicit(word, memory_order_relaxed);
        uint64_t new = act == SET ? old | mask : old & ~mask;
        if (new != old)
            atomic_store_explicit(word, new, memory_order_relaxed);
        bit += count;
    }
}

static bool is_noted(struct shadow_leaf *leaf, uintptr_t address)
{
    size_t granule = (address % LEAF_BYTES) >> SHADOW_GRANULE_SHIFT;
    size_t page = (address % LEAF_BYTES) >> SHADOW_PAGE_SHIFT;
    uint64_t granules = atomic_load_explicit(&leaf->granules[granule / 64], memory_order_relaxed);
    uint64_t pages = atomic_load_explicit(&leaf->pages[page / 64], memory_order_relaxed);
    return ((granules >> granule % 64) & 1) != 0 || ((pages >> page % 64) & 1) != 0;
}

/* What of [start, end) lies in one leaf. */
static void note(struct shadow_leaf *leaf, uintptr_t start, uintptr_t end)
{
    uintptr_t from = start % LEAF_BYTES;
    uintptr_t to = from + (end - start);
    count_pages(leaf, from, to, false, 1);
    if (end - start < LARGE_BYTES) {
        change(leaf->granules, from >> GRANULE_BITS, (to + 15) >> GRANULE_BITS, SET);
        return;
    }
    uintptr_t whole = (from + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    uintptr_t whole_end = to & ~(PAGE_BYTES - 1);
    change(leaf->granules, from >> GRANULE_BITS, whole >> GRANULE_BITS, SET);
    change(leaf->pages, whole >> SHADOW_PAGE_SHIFT, whole_end >> SHADOW_PAGE_SHIFT, SET);
    change(leaf->granules, whole_end >> GRANULE_BITS, (to + 15) >> GRANULE_BITS, SET);
}

bool shadow_hand_out(const void *block, size_t bytes)
{
    uintptr_t start = (uintptr_t)block;
    uintptr_t end = start + (bytes != 0 ? bytes : 1);
    struct shadow_leaf *leaf = leaf_of(start, true);
    if (leaf == NULL || is_noted(leaf, start)) {
        if (leaf != NULL) /* as a page: the next time it is seen at once */
            note(leaf, start, start + 1);
        return false;
    }
    for (uintptr_t next; start < end; start = next) {
        next = (start | (LEAF_BYTES - 1)) + 1;
        leaf = leaf_of(start, true);
        if (leaf != NULL)
            note(leaf, start, next < end ? next : end);
    }
    return true;
}

void shadow_forget(uintptr_t start, size_t bytes)
{
    uintptr_t end = start + bytes;
    for (uintptr_t next; start < end; start = next) {
        next = (start | (LEAF_BYTES - 1)) + 1;
        struct shadow_leaf *leaf = leaf_of(start, false);
        if (leaf == NULL)
            continue;
        uintptr_t from = start % LEAF_BYTES;
        uintptr_t to = from + ((next < end ? next : end) - start);
        if (to - from ==
            LEAF_BYTES) { /* unmapped rather than filled with zeroes: it may never have been touched */
            stub_call3(SYS_madvise, (long)leaf, offsetof(struct shadow_leaf, noted), 4 /* MADV_DONTNEED */);
            memset((void *)leaf->noted, 0, sizeof leaf->noted);
            continue;
        }
        count_pages(leaf, from, to, true, -1);
        change(leaf->granules, from >> GRANULE_BITS, to >> GRANULE_BITS, CLEAR);
        change(leaf->pages, from >> SHADOW_PAGE_SHIFT, to >> SHADOW_PAGE_SHIFT, CLEAR);
    }
}
