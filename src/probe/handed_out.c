#include "probe/handed_out.h"

#include "probe/direct_syscall.h"
#include "probe/own_memory.h"

#include <string.h>

_Atomic(struct handed_out_leaf *) handed_out_leaves[HANDED_OUT_LEAVES];
static _Atomic(struct handed_out_leaf *) leaves;

#define LEAF_BYTES   ((uintptr_t)1 << HANDED_OUT_LEAF_SHIFT)
#define PAGE_BYTES   ((uintptr_t)1 << HANDED_OUT_PAGE_SHIFT)
#define LARGE_BYTES  (8 * PAGE_BYTES) /* blocks of this size use one bit for each page */
#define GRANULE_BITS HANDED_OUT_GRANULE_SHIFT

enum act { SET, CLEAR };

/* Returns the leaf of an address. If there is none, creates the leaf if `make` is true. Returns
 * NULL if there is no leaf, or no memory for one. */
static struct handed_out_leaf *leaf_of(uintptr_t address, bool make)
{
    _Atomic(struct handed_out_leaf *) *place =
        &handed_out_leaves[(address >> HANDED_OUT_LEAF_SHIFT) % HANDED_OUT_LEAVES];
    struct handed_out_leaf *leaf = atomic_load_explicit(place, memory_order_acquire);
    if (leaf != NULL || !make)
        return leaf;
    leaf = own_memory_map_sparse(sizeof *leaf);
    if (leaf == NULL)
        return NULL;
    leaf->start = address & ~(LEAF_BYTES - 1);
    struct handed_out_leaf *other = NULL;
    if (!atomic_compare_exchange_strong(place, &other, leaf)) {
        direct_call3(SYS_munmap, (long)leaf, sizeof *leaf, 0);
        return other;
    }
    leaf->next = atomic_load_explicit(&leaves, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&leaves, &leaf->next, leaf, memory_order_release,
                                                  memory_order_relaxed))
        ;
    return leaf;
}

struct handed_out_leaf *handed_out_first(void)
{
    return atomic_load_explicit(&leaves, memory_order_acquire);
}

static uint64_t hidden_word(const struct handed_out_leaf *leaf, size_t word)
{
    _Atomic uint64_t *hidden = atomic_load_explicit(&leaf->hidden, memory_order_acquire);
    return hidden != NULL ? atomic_load_explicit(&hidden[word], memory_order_relaxed) : 0;
}

bool handed_out_page_is_noted(const struct handed_out_leaf *leaf, size_t page)
{
    enum { WORDS = 1 << (HANDED_OUT_PAGE_SHIFT - HANDED_OUT_WORD_SHIFT) };
    uint64_t any =
        atomic_load_explicit(&leaf->pages[page / 64], memory_order_relaxed) >> page % 64 & 1;
    for (size_t i = 0; i < WORDS; i++)
        any |= atomic_load_explicit(&leaf->granules[page * WORDS + i], memory_order_relaxed) |
               hidden_word(leaf, page * WORDS + i);
    return any != 0;
}

/* Returns the end of the extent of `page`, or `last` if `last` comes earlier. Sets `*extent` to the
 * index of this extent. */
static size_t end_in_extent(size_t page, size_t last, size_t *extent)
{
    *extent = page / HANDED_OUT_EXTENT_PAGES;
    size_t end = (*extent + 1) * HANDED_OUT_EXTENT_PAGES;
    return end < last ? end : last;
}

/* Updates leaf->noted before the bits of [from, to) change. If `noted` is false, the caller is
 * about to record the range as handed out. The pages without a noted granule are then added to the
 * counts. If `noted` is true, the caller is about to clear the range. The pages with a noted
 * granule are then subtracted. If leaf->noted is 0 for an extent, its bits need not be read. */
static void count_pages(struct handed_out_leaf *leaf, uintptr_t from, uintptr_t to, bool noted)
{
    size_t last = (to + PAGE_BYTES - 1) >> HANDED_OUT_PAGE_SHIFT;
    for (size_t page = from >> HANDED_OUT_PAGE_SHIFT, extent, end; page < last; page = end) {
        end = end_in_extent(page, last, &extent);
        _Atomic uint16_t *count = &leaf->noted[extent];
        uint16_t found = 0;
        if (atomic_load_explicit(count, memory_order_relaxed) == 0)
            found = noted ? 0 : (uint16_t)(end - page);
        else
            for (; page < end; page++)
                found = (uint16_t)(found + (handed_out_page_is_noted(leaf, page) == noted));
        atomic_fetch_add_explicit(count, noted ? (uint16_t)-found : found, memory_order_relaxed);
    }
}

/* Sets or clears the bits `first` to `last - 1` of a bitmap. */
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

static bool is_noted(struct handed_out_leaf *leaf, uintptr_t address)
{
    size_t granule = (address % LEAF_BYTES) >> HANDED_OUT_GRANULE_SHIFT;
    size_t page = (address % LEAF_BYTES) >> HANDED_OUT_PAGE_SHIFT;
    uint64_t granules = atomic_load_explicit(&leaf->granules[granule / 64], memory_order_relaxed) |
                        hidden_word(leaf, granule / 64);
    uint64_t pages = atomic_load_explicit(&leaf->pages[page / 64], memory_order_relaxed);
    return ((granules >> granule % 64) & 1) != 0 || ((pages >> page % 64) & 1) != 0;
}

/* Records [start, end), which lies in one leaf, as handed out. */
static void note(struct handed_out_leaf *leaf, uintptr_t start, uintptr_t end)
{
    uintptr_t from = start % LEAF_BYTES;
    uintptr_t to = from + (end - start);
    count_pages(leaf, from, to, false);
    if (end - start < LARGE_BYTES) {
        change(leaf->granules, from >> GRANULE_BITS, (to + 15) >> GRANULE_BITS, SET);
        return;
    }
    uintptr_t whole = (from + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    uintptr_t whole_end = to & ~(PAGE_BYTES - 1);
    change(leaf->granules, from >> GRANULE_BITS, whole >> GRANULE_BITS, SET);
    change(leaf->pages, whole >> HANDED_OUT_PAGE_SHIFT, whole_end >> HANDED_OUT_PAGE_SHIFT, SET);
    change(leaf->granules, whole_end >> GRANULE_BITS, (to + 15) >> GRANULE_BITS, SET);
}

/* Records [start, end) as handed out, in all leaves that the range reaches. */
static void note_all(uintptr_t start, uintptr_t end)
{
    for (uintptr_t next; start < end; start = next) {
        next = (start | (LEAF_BYTES - 1)) + 1;
        struct handed_out_leaf *leaf = leaf_of(start, true);
        if (leaf != NULL)
            note(leaf, start, next < end ? next : end);
    }
}

bool handed_out_add(const void *block, size_t bytes)
{
    uintptr_t start = (uintptr_t)block;
    uintptr_t end = start + (bytes != 0 ? bytes : 1);
    struct handed_out_leaf *leaf = leaf_of(start, true);
    if (leaf == NULL)
        return false;
    bool is_new = !is_noted(leaf, start);
    struct handed_out_leaf *last = leaf_of(end - 1, true);
    /* The end of the block may be new even if its beginning is not: realloc grew the block, or the
     * last block at this address was shorter. If both are noted, the first granule still gets a bit
     * of its own, so that handed_out_is_noted() finds this bit the next time. */
    if (is_new || (last != NULL && !is_noted(last, end - 1)))
        note_all(start, end);
    else
        note(leaf, start, start + 1);
    return is_new;
}

/* --- hidden bits ------------------------------------------------------------------------------ */

enum { LEAF_WORDS = COUNT_OF(((struct handed_out_leaf *)0)->granules) };

static _Atomic uint64_t *make_hidden(struct handed_out_leaf *leaf)
{
    _Atomic uint64_t *hidden = atomic_load_explicit(&leaf->hidden, memory_order_acquire);
    if (hidden != NULL)
        return hidden;
    enum { BYTES = LEAF_WORDS * sizeof(uint64_t) };
    _Atomic uint64_t *made = own_memory_map_sparse(BYTES);
    if (made != NULL && !atomic_compare_exchange_strong(&leaf->hidden, &hidden, made)) {
        direct_call3(SYS_munmap, (long)made, BYTES, 0);
        return hidden;
    }
    return made;
}

/* Moves the bits of a range from leaf->granules to leaf->hidden, or back if `hide` is false. Each
 * bit is set in the target before it is cleared in the source, so that the granule stays noted. */
static void move(struct handed_out_leaf *leaf, uintptr_t from, uintptr_t to, bool hide)
{
    _Atomic uint64_t *hidden = atomic_load_explicit(&leaf->hidden, memory_order_acquire);
    size_t last = (to + 15) >> GRANULE_BITS;
    for (size_t bit = from >> GRANULE_BITS; bit < last;) {
        size_t offset = bit % 64, count = last - bit < 64 - offset ? last - bit : 64 - offset;
        uint64_t mask = (count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1) << offset;
        _Atomic uint64_t *quick = &leaf->granules[bit / 64], *slow = &hidden[bit / 64];
        _Atomic uint64_t *source = hide ? quick : slow, *target = hide ? slow : quick;
        uint64_t bits = atomic_load_explicit(source, memory_order_relaxed) & mask;
        if (bits != 0) {
            atomic_fetch_or_explicit(target, bits, memory_order_relaxed);
            atomic_fetch_and_explicit(source, ~bits, memory_order_relaxed);
        }
        bit += count;
    }
}

static bool move_all(uintptr_t start, size_t bytes, bool hide)
{
    bool all = true;
    uintptr_t end = start + bytes;
    for (uintptr_t next; start < end; start = next) {
        next = (start | (LEAF_BYTES - 1)) + 1;
        struct handed_out_leaf *leaf = leaf_of(start, hide);
        uintptr_t from = start % LEAF_BYTES;
        uintptr_t to = from + ((next < end ? next : end) - start);
        if (leaf != NULL && (hide ? make_hidden(leaf) : atomic_load(&leaf->hidden)) != NULL)
            move(leaf, from, to, hide);
        else
            all = false;
    }
    return all;
}

bool handed_out_hide(uintptr_t start, size_t bytes)
{
    return move_all(start, bytes, true);
}

void handed_out_show(uintptr_t start, size_t bytes)
{
    (void)move_all(start, bytes, false);
}

void handed_out_forget(uintptr_t start, size_t bytes)
{
    /* munmap() and madvise() also round the end up to a page. */
    uintptr_t end = (start + bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    start = (start + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    for (uintptr_t next; start < end; start = next) {
        next = (start | (LEAF_BYTES - 1)) + 1;
        struct handed_out_leaf *leaf = leaf_of(start, false);
        if (leaf == NULL)
            continue;
        uintptr_t from = start % LEAF_BYTES;
        uintptr_t to = from + ((next < end ? next : end) - start);
        _Atomic uint64_t *hidden = atomic_load_explicit(&leaf->hidden, memory_order_acquire);
        /* The bits of a whole leaf are given back to the kernel rather than filled with zeroes,
         * because many of their pages may never have been touched. */
        if (to - from == LEAF_BYTES && !direct_forbidden) {
            direct_call3(SYS_madvise, (long)leaf, offsetof(struct handed_out_leaf, noted),
                         4 /* MADV_DONTNEED */);
            if (hidden != NULL)
                direct_call3(SYS_madvise, (long)hidden, LEAF_WORDS * sizeof *hidden, 4);
            memset((void *)leaf->noted, 0, sizeof leaf->noted);
            continue;
        }
        count_pages(leaf, from, to, true);
        change(leaf->granules, from >> GRANULE_BITS, to >> GRANULE_BITS, CLEAR);
        if (hidden != NULL)
            change(hidden, from >> GRANULE_BITS, to >> GRANULE_BITS, CLEAR);
        change(leaf->pages, from >> HANDED_OUT_PAGE_SHIFT, to >> HANDED_OUT_PAGE_SHIFT, CLEAR);
    }
}

/* --- pages that the allocator has from the kernel --------------------------------------------- */

enum { WIDE_MOST = 32 };

/* Mappings of 1 GiB and more. Most of them only reserve addresses, so their pages are not noted one
 * by one: all of them are held. An entry with start == 0 is unused. */
static struct {
    _Atomic uintptr_t start;
    _Atomic uintptr_t end;
} wide[WIDE_MOST];
static _Atomic bool wide_full; /* a mapping found no unused entry */

static void add_wide(uintptr_t start, uintptr_t end)
{
    for (size_t i = 0; i < WIDE_MOST; i++) {
        uintptr_t unused = 0;
        if (atomic_compare_exchange_strong(&wide[i].start, &unused, start)) {
            atomic_store(&wide[i].end, end);
            return;
        }
    }
    wide_full = true;
}

/* Takes [start, end) out of all wide mappings. Returns the number of bytes that were in them. */
static size_t remove_wide(uintptr_t start, uintptr_t end)
{
    size_t removed = 0;
    for (size_t i = 0; i < WIDE_MOST; i++) {
        uintptr_t from = atomic_load(&wide[i].start), to = atomic_load(&wide[i].end);
        if (from == 0 || start >= to || end <= from)
            continue;
        removed += (end < to ? end : to) - (start > from ? start : from);
        atomic_store(&wide[i].end, start > from ? start : 0);
        if (start <= from)
            atomic_store(&wide[i].start, 0);
        if (end < to)
            add_wide(end, to);
    }
    return removed;
}

static bool touches_wide(uintptr_t start, uintptr_t end, bool wholly)
{
    for (size_t i = 0; i < WIDE_MOST; i++) {
        uintptr_t from = atomic_load(&wide[i].start), to = atomic_load(&wide[i].end);
        if (wholly ? from <= start && end <= to : start < to && end > from)
            return true;
    }
    return false;
}

/* Notes the pages of [from, to) in one leaf as held, or as given back if `more` is false. Returns
 * the number of pages for which that is a change. Not inlined, so that hold_all() takes less of the
 * stack while it makes a leaf. */
static __attribute__((noinline)) size_t hold_pages(struct handed_out_leaf *leaf, uintptr_t from,
                                                   uintptr_t to, bool more)
{
    size_t last = to >> HANDED_OUT_PAGE_SHIFT, changed = 0;
    for (size_t page = from >> HANDED_OUT_PAGE_SHIFT, end; page < last; page = end) {
        end = (page | 63) + 1 < last ? (page | 63) + 1 : last;
        uint64_t mask = (end - page == 64 ? 0 : UINT64_C(1) << (end - page)) - 1;
        mask <<= page % 64;
        _Atomic uint64_t *word = &leaf->owned[page / 64];
        uint64_t before = more ? atomic_fetch_or_explicit(word, mask, memory_order_relaxed)
                               : atomic_fetch_and_explicit(word, ~mask, memory_order_relaxed);
        uint16_t pages = (uint16_t)__builtin_popcountll((more ? ~before : before) & mask);
        atomic_fetch_add_explicit(&leaf->held[page / HANDED_OUT_EXTENT_PAGES],
                                  more ? pages : (uint16_t)-pages, memory_order_relaxed);
        changed += pages;
    }
    return changed;
}

/* The same for whole pages that several leaves may have. Returns the number of changed bytes. */
static size_t hold_all(uintptr_t start, uintptr_t end, bool more)
{
    size_t changed = 0;
    for (uintptr_t next; start < end; start = next) {
        next = (start | (LEAF_BYTES - 1)) + 1;
        struct handed_out_leaf *leaf = leaf_of(start, more);
        if (leaf != NULL)
            changed += hold_pages(leaf, start % LEAF_BYTES,
                                  start % LEAF_BYTES + ((next < end ? next : end) - start), more);
    }
    return changed << HANDED_OUT_PAGE_SHIFT;
}

size_t handed_out_hold(uintptr_t start, size_t bytes)
{
    uintptr_t end = (start + bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    start &= ~(PAGE_BYTES - 1);
    if (touches_wide(start, end, true))
        return 0;
    if (end - start < LEAF_BYTES)
        return hold_all(start, end, true);
    size_t before = hold_all(start, end, false) + remove_wide(start, end);
    add_wide(start, end);
    return end - start - before;
}

size_t handed_out_let_go(uintptr_t start, size_t bytes)
{
    uintptr_t end = (start + bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    start = (start + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    return start < end ? hold_all(start, end, false) + remove_wide(start, end) : 0;
}

unsigned handed_out_held(const struct handed_out_leaf *leaf, size_t extent)
{
    uintptr_t start = leaf->start + (extent << HANDED_OUT_EXTENT_SHIFT);
    if (wide_full || touches_wide(start, start + ((uintptr_t)1 << HANDED_OUT_EXTENT_SHIFT), false))
        return HANDED_OUT_EXTENT_PAGES;
    return atomic_load_explicit(&leaf->held[extent], memory_order_relaxed);
}
