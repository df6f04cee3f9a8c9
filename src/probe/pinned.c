#include "probe/pinned.h"

#include "probe/direct_syscall.h"
#include "probe/own_memory.h"
#include "record/call_stacks.h"

#include <fcntl.h>
#include <string.h>

enum { INDEX_SHIFT_FIRST = 12, PAGE_SHIFT = PINNED_PAGES, ENTRIES = 512 };
static_assert(ENTRIES << PAGE_SHIFT == 1 << PINNED_CHUNKS, "one reading for each chunk");

struct span {
    uintptr_t number; /* address of the span >> shift */
    uint64_t used;    /* bytes of live blocks in the span */
    uint32_t blocks;  /* number of live blocks that touch the span */
    uint32_t held;    /* resident bytes of a sparse span; 0: not sparse */
};

static unsigned shift;
static struct span *spans; /* [0] is not used */
static size_t spans_room, span_count;
/* Hash table of indices into `spans`, by span.number; 0: empty. At most half of it is filled. */
static uint32_t *span_index;
static unsigned index_shift;

static uint32_t *slot_of(uintptr_t number)
{
    size_t mask = ((size_t)1 << index_shift) - 1;
    size_t slot = (size_t)(number * UINT64_C(0x9e3779b97f4a7c15) >> (64 - index_shift));
    while (span_index[slot] != 0 && spans[span_index[slot]].number != number)
        slot = (slot + 1) & mask;
    return &span_index[slot];
}

static void widen_index(void)
{
    memset(span_index, 0, sizeof *span_index << index_shift);
    index_shift++;
    for (size_t i = 1; i < span_count; i++)
        *slot_of(spans[i].number) = (uint32_t)i;
}

bool pinned_begin(enum pinned_span kind, size_t blocks)
{
    size_t wanted = 2 * blocks + 1;
    if (wanted > spans_room) {
        size_t room = 1 << INDEX_SHIFT_FIRST;
        while (room < wanted)
            room *= 2;
        spans = room <= UINT32_MAX ? own_memory_map_sparse(room * sizeof *spans) : NULL;
        span_index = spans != NULL ? own_memory_map_sparse(2 * room * sizeof *span_index) : NULL;
        spans_room = span_index != NULL ? room : 0;
        index_shift = INDEX_SHIFT_FIRST;
    }
    if (spans_room == 0)
        return false;
    memset(span_index, 0, sizeof *span_index << index_shift);
    index_shift = INDEX_SHIFT_FIRST;
    shift = kind;
    span_count = 1;
    return true;
}

/* Returns the first or the last span of a block, or 0 if the block covers the whole span. */
static uintptr_t end_span(uintptr_t start, uint64_t bytes, bool last)
{
    uintptr_t end = start + (bytes != 0 ? bytes : 1);
    uintptr_t number = (last ? end - 1 : start) >> shift;
    bool is_covered = start <= number << shift && end >= (number + 1) << shift;
    return is_covered ? 0 : number;
}

static void add_to_span(uintptr_t number, uintptr_t start, uint64_t bytes)
{
    uint32_t *slot = slot_of(number);
    if (*slot == 0) {
        spans[span_count] = (struct span){.number = number};
        *slot = (uint32_t)span_count++;
        if (span_count > (size_t)1 << (index_shift - 1)) {
            widen_index();
            slot = slot_of(number);
        }
    }
    uintptr_t from = number << shift, to = from + ((uintptr_t)1 << shift), end = start + bytes;
    from = start > from ? start : from;
    to = end < to ? end : to;
    spans[*slot].used += to - from;
    spans[*slot].blocks++;
}

void pinned_add(uintptr_t start, uint64_t bytes)
{
    uintptr_t first = end_span(start, bytes, false), last = end_span(start, bytes, true);
    if (first != 0)
        add_to_span(first, start, bytes);
    if (last != 0 && last != first)
        add_to_span(last, start, bytes);
}

/* Returns the resident bytes of a span that belong neither to a file nor to the probe. */
static uint32_t resident_bytes(long pagemap, uintptr_t number)
{
    static uint64_t entries[ENTRIES]; /* proc_pid_pagemap(5) */
    const uint64_t present = UINT64_C(1) << 63, of_file = UINT64_C(1) << 61;
    uintptr_t page = number << (shift - PAGE_SHIFT);
    size_t count = (size_t)1 << (shift - PAGE_SHIFT);
    long got = direct_try(SYS_pread64, pagemap, (long)entries, (long)(count * sizeof entries[0]),
                          (long)(page * sizeof entries[0]), 0, 0);
    count = direct_failed(got) ? 0 : (size_t)got / sizeof entries[0];
    own_memory_clear(entries, page, count);
    uint32_t pages = 0;
    for (size_t i = 0; i < count; i++)
        pages += (entries[i] & (present | of_file)) == present;
    return pages << PAGE_SHIFT;
}

struct pinned_totals pinned_judge(void)
{
    struct pinned_totals totals = {.is_known = false};
    const uint64_t whole = (uint64_t)1 << shift;
    long pagemap =
        direct_try(SYS_openat, AT_FDCWD, (long)"/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (direct_failed(pagemap))
        return totals;
    for (size_t i = 1; i < span_count; i++) {
        struct span *span = &spans[i];
        if (span->used * CALL_STACKS_SPARSE >= whole)
            continue;
        uint32_t resident = resident_bytes(pagemap, span->number);
        if (span->used * CALL_STACKS_SPARSE >= resident)
            continue;
        span->held = resident;
        totals.sparse++;
        totals.held += resident;
    }
    direct_try(SYS_close, pagemap, 0, 0, 0, 0, 0);
    totals.is_known = !direct_forbidden; /* else the sums may be incomplete */
    return totals;
}

static double part_of(uintptr_t number)
{
    const struct span *span = &spans[*slot_of(number)];
    return (double)span->held / (double)span->blocks;
}

double pinned_part(uintptr_t start, uint64_t bytes)
{
    uintptr_t first = end_span(start, bytes, false), last = end_span(start, bytes, true);
    double part = first != 0 ? part_of(first) : 0;
    return last != 0 && last != first ? part + part_of(last) : part;
}
