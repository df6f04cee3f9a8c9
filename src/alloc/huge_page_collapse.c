#include "alloc/huge_page_collapse.h"

#include "alloc/page_heap.h"
#include "alloc/slab.h"
#include "base/ticks.h"
#include "os/os.h"

enum {
    /* A dense chunk is collapsed only while all collapsing so far has taken less than 1/32 of the
     * time since the first look. For a reused chunk, the limit is 1/8. */
    LOOK_SHARE = 32,
    REUSE_SHARE = 8,

    REFUSALS_MOST = 10, /* doublings of `wait`, which is then about four minutes */

    /* Limit of one call of huge_page_collapse_epoch(): 7 ms at 5 GHz, 33 ms at 1 GHz. Without the
     * limit, a call after a long time without work could take long. */
    LOOK_TICKS = 1 << 25,
};

/* Read and written without a lock: the ends of two epochs rarely overlap. */
static _Atomic uint64_t began_ticks; /* time of the first look; 0: no look yet */
static _Atomic uint64_t spent_ticks; /* time that all collapsing has taken */
static _Atomic unsigned refusals;    /* number of the kernel's refusals in a row */
static _Atomic unsigned wait;        /* epochs to wait after a refusal */

/* Returns whether collapsing has so far taken less than one part in `share` of the time since the
 * first look. The first call stores `now` as that time and returns false. */
static bool has_time(uint64_t now, unsigned share)
{
    uint64_t began = 0;
    atomic_compare_exchange_strong_explicit(&began_ticks, &began, now, memory_order_relaxed,
                                            memory_order_relaxed);
    return began != 0 &&
           atomic_load_explicit(&spent_ticks, memory_order_relaxed) < (now - began) / share;
}

/* Returns whether all pages of a slab have been touched by carving. Carving writes to every block.
 * If no block is larger than an OS page, carving has therefore touched every page up to the page in
 * which the last carved block begins, unless slab_trim.h gave a page back. */
static bool is_carved(const struct slab *slab)
{
    size_t bytes = size_class_bytes(__atomic_load_n(&slab->class, __ATOMIC_RELAXED));
    size_t page = os_page_bytes();
    size_t slab_bytes = (size_t)atomic_load_explicit(&slab->slices, memory_order_relaxed)
                        << SLICE_SHIFT;
    size_t end = atomic_load_explicit(&slab->carved, memory_order_relaxed) * bytes;
    uint32_t away = atomic_load_explicit(&slab->away, memory_order_relaxed);
    return away == 0 && bytes <= page && end + page >= slab_bytes + bytes;
}

/* Returns whether at most a thirty-second of a chunk may be untouched, as far as the records show.
 * Other threads may change the records meanwhile, so the answer may be out of date. */
static bool is_touched(size_t first)
{
    size_t unknown = 0;
    /* True if the slice belongs to a large block, or is free and lies behind a large block. The two
     * cases look alike, because only the record of a large block's first slice is valid. */
    bool large = false;

    /* False for the slices of a slab that is not carved to its end. A slice outside a slab counts
     * as touched, unless `large` is set, because every slice of a dense chunk is dirty. */
    bool known = true;
    for (size_t index = first; index < first + CHUNK_SLICES; index++) {
        const struct slab *slab = slab_at(index);
        unsigned kind = atomic_load_explicit(&slab->kind, memory_order_relaxed);
        if (kind == RUN_LARGE || kind == RUN_CACHED)
            large = true;
        else if (kind == RUN_SLAB || kind == RUN_OWN)
            large = false;
        if (kind != RUN_TAIL)
            known = kind != RUN_SLAB || is_carved(slab);
        unknown += large || !known || kind == RUN_LOST;
    }
    return unknown <= CHUNK_SLICES / 32;
}

/* Records whether the kernel refused to collapse a chunk. Each refusal in a row doubles the number
 * of epochs to wait before the next attempt. */
static void learn(bool refused)
{
    unsigned before = atomic_load_explicit(&refusals, memory_order_relaxed);
    if (refused)
        atomic_store_explicit(&wait, 1u << before, memory_order_relaxed);
    atomic_store_explicit(&refusals, refused ? before + (before < REFUSALS_MOST) : 0,
                          memory_order_relaxed);
}

/* Returns whether this epoch is one of those to wait after a refusal, and counts the epoch. */
static bool is_waiting(void)
{
    unsigned epochs = atomic_load_explicit(&wait, memory_order_relaxed);
    if (epochs > 0)
        atomic_store_explicit(&wait, epochs - 1, memory_order_relaxed);
    return epochs > 0;
}

/* Returns whether at least 31 of 32 pages of an unused chunk are known to be resident. A page is
 * known to be resident if its first 64 bytes are not all zero. Reading a page that is not resident
 * takes no memory: the kernel maps its shared page of zeroes. */
static bool is_written(const void *chunk)
{
    size_t page = os_page_bytes();
    size_t unknown = 0;
    for (size_t at = 0; at < CHUNK_BYTES && unknown <= CHUNK_BYTES / page / 32; at += page) {
        const uint64_t *line = (const uint64_t *)((const char *)chunk + at);
        uint64_t any = 0;
        for (int i = 0; i < 8; i++)
            any |= line[i];
        unknown += any == 0;
    }
    return unknown <= CHUNK_BYTES / page / 32;
}

/* Collapses a chunk into a huge page, if `touched` says that its pages are resident. A chunk that
 * does not become a huge page may be found again later. Returns false if the kernel refused. */
static bool collapse(void *chunk, bool touched)
{
    bool allowed = touched && page_heap_allow_huge(chunk);
    bool done = touched && os_collapse(chunk);
    if (!done)
        page_heap_put_dense(chunk, allowed);
    if (touched)
        learn(!done);
    return done || !touched;
}

void huge_page_collapse_epoch(void)
{
    page_heap_look();
    if (is_waiting())
        return;
    size_t from = 0;
    bool goes_on = true;
    uint64_t first = ticks_now();
    for (uint64_t start = first, end;
         goes_on && start - first < LOOK_TICKS && has_time(start, LOOK_SHARE); start = end) {
        void *chunk = page_heap_take_dense(&from);
        goes_on = chunk != NULL && collapse(chunk, is_touched(region_index(chunk)));
        end = ticks_now();
        atomic_fetch_add_explicit(&spent_ticks, end - start, memory_order_relaxed);
    }
}

void huge_page_collapse_reused(size_t index, size_t slices)
{
    void *chunk = page_heap_find_reused(index, slices);
    if (LIKELY(chunk == NULL) || atomic_load_explicit(&wait, memory_order_relaxed) > 0)
        return;
    uint64_t start = ticks_now();
    if (!has_time(start, REUSE_SHARE) || !page_heap_take_reused(chunk))
        return;
    collapse(chunk, is_written(chunk));
    atomic_fetch_add_explicit(&spent_ticks, ticks_now() - start, memory_order_relaxed);
}
