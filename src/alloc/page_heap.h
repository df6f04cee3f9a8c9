/* page_heap.h - runs of slices: hands them out, takes them back, and knows which are resident.
 *
 * A run shorter than 256 KiB lies within a chunk, where it leaves the least (chunk.h). A longer one takes the lowest place that
 * fits, also across the borders of chunks (free_map.h), and there begins at a multiple of a power of two that is at most an eighth of
 * it, if that fits as well: where runs of other lengths began, so that the first pages of those that come and go are few. What goes
 * back to the machine goes from the top.
 *
 * Always true, between calls:
 *
 *     a slice of ours is used or free, as its chunk's map says; slice 0 is used
 *     a slice that is not dirty reads as zero and is not resident, but for page_heap_purge_lazily()
 *
 * Every function takes the page heap's lock itself, but for those that say so. Runs are 1 to REGION_SLICES_MAX slices.
 */
#ifndef CAIRN_ALLOC_PAGE_HEAP_H
#define CAIRN_ALLOC_PAGE_HEAP_H

#include "alloc/region.h"

/* A run of `slices`, or 0 when the machine refuses. `*zero` tells whether all of it reads as zero. If it can be, there
 * are `room` free slices behind it, for a run that will be extended; they are anybody's. */
size_t page_heap_allocate(size_t slices, size_t room, bool *zero);

/* The same with its address a multiple of `alignment` bytes, a power of two above SLICE_BYTES. */
size_t page_heap_allocate_aligned(size_t slices, size_t alignment, bool *zero);

/* How much is in use, and how much is free and resident, in slices. */
struct page_heap_use {
    size_t used;
    size_t idle;
};

/* The same, and how it has changed. */
struct page_heap_level {
    struct page_heap_use use;
    size_t idle_least; /* since the epoch began: so much nobody needed meanwhile */
    size_t fresh; /* handed out, ever, that were not resident: mostly a page fault or several */
    bool is_lazy; /* page_heap_purge_lazily() */
};
struct page_heap_level page_heap_level(void);

/* The same at the end of an epoch; the next begins. */
struct page_heap_level page_heap_epoch(void);

/* Takes back any part of what was handed out. Returns what that came to. */
struct page_heap_use page_heap_free(size_t index, size_t slices);

/* The same of what reads as zero and is not resident, because its pages went elsewhere. */
void page_heap_free_clean(size_t index, size_t slices);

/* The same where it is a new mapping: nothing was asked for it. */
void page_heap_free_renewed(size_t index, size_t slices);

/* Lengthens a run at its end where that is free; `*zero` tells of what was added. */
bool page_heap_extend(size_t index, size_t slices, size_t more, bool *zero);

/* Gives free resident slices back to the machine until at most `keep_bytes` of them are left; empty chunks first.
 * Returns the bytes given back. */
size_t page_heap_purge(size_t keep_bytes);

/* From now on what goes back does so when the kernel needs it: sooner done, and resident until then. What is handed out of a chunk
 * of which anything went so is not said to read as zero any more. */
void page_heap_purge_lazily(void);

/* From now on no more than this is handed out, and what is idle goes back where both together would be more. 0: all that
 * there is. Returns what it was before. What is handed out already stays so. */
size_t page_heap_limit(size_t bytes);

/* For huge_page.h. A chunk is dense that is in use and all of which has been touched since it was mapped or given back, as far as is
 * known, so that a huge page in its place takes no more memory; not one that begins within a large block, nor any of a program
 * that has less than 40 MiB in use: while the kernel copies, both are resident. page_heap_look() looks
 * which are; page_heap_take_dense() is one that was at two looks in a row, and is told once: a multiple of CHUNK_BYTES; NULL: there
 * is none from chunk `*from` on, where the next call goes on. Given back to, it is told again after two more looks. No chunk is dense
 * that was asked for by first_touch.h's rules, nor any where it says never. */
void page_heap_look(void);
void *page_heap_take_dense(size_t *from);
void page_heap_put_dense(void *start);

/* For huge_page.h, too: a chunk all of which is the caller's run's, and has been one run's several times since it was mapped or
 * given back. NULL: there is none. page_heap_take_reused() is true where it may become a huge page, as above; it is found again after
 * twice as many times. */
void *page_heap_find_reused(size_t index, size_t slices);
bool page_heap_take_reused(void *start);

/* The run is its thread's, which kept it, and serves again, as if it had been handed out. */
void page_heap_count_reuse(size_t index, size_t slices);

struct page_heap_statistics {
    size_t mapped_slices;
    size_t used_slices;
    size_t idle_slices;  /* free and resident */
    size_t purged_bytes; /* given back, ever */
    size_t purges;       /* kernel calls for it */
    size_t grown;        /* kernel calls that mapped */
    size_t used_most;    /* most that used_slices was */
    size_t limit_slices; /* REGION_SLICES_MAX: none */
    size_t record_bytes; /* beside the slices */
};
struct page_heap_statistics page_heap_statistics(void);

/* For fork: nothing moves between the two. */
void page_heap_lock(void);
void page_heap_unlock(void);

/* Asserts the contract. Takes the lock. */
void page_heap_check(void);

#endif
