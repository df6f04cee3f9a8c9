/* page_heap.h - hands out runs of slices, takes them back, and knows which slices are resident.
 *
 * A run is a sequence of 1 to REGION_SLICES_MAX - 1 consecutive slices. Slabs and large blocks each
 * lie in a run of their own. Any thread may call any function here. Every function takes the page
 * heap's lock itself, unless its comment says otherwise.
 *
 * A run is placed as follows:
 * - A run shorter than 256 KiB lies within one chunk, in the chunk where it fits best (chunk.h). A
 *   longer run that is shortened later may cross a chunk border.
 * - A longer run takes the lowest place that fits, and may cross chunk borders (free_map.h). If
 *   possible, it begins there at a multiple of a power of two that is at most an eighth of its
 *   length. Runs that come and go then begin where earlier runs began, on pages that are already
 *   resident.
 * - Memory is given back to the machine from the highest chunk down.
 *
 * A slice is dirty if it may have been touched since it was mapped or last given back. An idle
 * slice is free and dirty. Between calls, always:
 *
 *     every slice of a chunk that region_grow() mapped is used or free, as the chunk's map says
 *     slice 0 is marked as used, and is never handed out
 *     used_slices == number of used slices, without slice 0 and without those that are being moved
 *                    (page_heap_begin_move()), which never count again in a child of a fork
 *     idle_slices == number of slices that are free and dirty
 *     every used slice except slice 0 is dirty
 *     a slice that is not dirty reads as zero and is not resident, unless it was only offered to
 *     the kernel: see page_heap_purge_lazily()
 */
#ifndef CAIRN_ALLOC_PAGE_HEAP_H
#define CAIRN_ALLOC_PAGE_HEAP_H

#include "alloc/region.h"

/* Hands out a run of `slices` and returns the index of its first slice. Returns 0 when the machine
 * refuses memory or page_heap_limit() forbids it. `*zero` is set to whether the whole run reads as
 * zero. If possible, `room` free slices follow the run, or 64 MiB if that is less, so that
 * page_heap_extend() can lengthen it later. These slices are not reserved: any other call may take
 * them. */
size_t page_heap_allocate(size_t slices, size_t room, bool *zero);

/* Like page_heap_allocate() without room; the address of the run is a multiple of `alignment`
 * bytes, a power of two above SLICE_BYTES. */
size_t page_heap_allocate_aligned(size_t slices, size_t alignment, bool *zero)
    __attribute__((cold));

/* Memory in use, and memory that is free but resident, in slices. */
struct page_heap_use {
    size_t used;
    size_t idle;
};

/* The current use, and how it has changed. */
struct page_heap_level {
    struct page_heap_use use;
    size_t idle_least; /* lowest `idle` since the epoch began */
    size_t fresh;      /* slices ever handed out that were not resident */
    bool is_lazy;      /* page_heap_purge_lazily() was called */
};
struct page_heap_level page_heap_level(void);

/* Returns the level at the end of an epoch, and begins the next epoch. */
struct page_heap_level page_heap_epoch(void);

/* Takes back `slices` slices from `index` on, which may be any part of a run. Returns the amounts
 * of used and idle memory after the call. Freeing a slice that is not in use ends the program. */
struct page_heap_use page_heap_free(size_t index, size_t slices);

/* Like page_heap_free(), for slices that read as zero and are not resident. `renewed` says that
 * os_renew() succeeded for them. They are then usually a new mapping, so earlier requests for huge
 * or small pages in their chunks are forgotten. If os_renew() only cleared the range, the kernel
 * still has these requests. */
void page_heap_free_clean(size_t index, size_t slices, bool renewed);

/* Hands out a run of `to_slices` slices, like page_heap_allocate() with `to_slices` slices of room.
 * The caller will move the pages of the run of `slices` slices at `index` to the new run, and then
 * call page_heap_end_move(). Until then, these pages count once in the amount of used memory, its
 * peak and page_heap_limit(). If the new run may get huge pages (huge_page_unasked.h), the old run
 * gets this advice now, because pages keep their advice when they move. Returns 0 if
 * page_heap_allocate() would; the move has then not begun. */
size_t page_heap_begin_move(size_t index, size_t slices, size_t to_slices);

/* Ends a move of `moved_slices` slices, and takes back a run of `slices` slices from `index` on:
 * the old run if the pages have moved, and the new run if the kernel refused the move. os_renew()
 * has succeeded for this run. If it failed, `slices` is 0, and the run counts as used forever. */
void page_heap_end_move(size_t moved_slices, size_t index, size_t slices);

/* Lengthens a run by `more` slices at its end. Returns false if the slices behind the run are not
 * all free, or if page_heap_limit() forbids it. `*zero` is set to whether the added slices read as
 * zero. */
bool page_heap_extend(size_t index, size_t slices, size_t more, bool *zero);

/* Gives idle slices back to the machine until at most `keep_bytes` of them are left. Empty chunks
 * go first. Returns the bytes given back. */
size_t page_heap_purge(size_t keep_bytes);

/* Gives OS pages of a run in use back to the machine. Nothing in them is needed any more. Returns
 * false if the machine refuses. The slices stay in use and dirty. */
bool page_heap_trim(void *start, size_t bytes);

/* From now on, purged memory is only offered to the kernel (os_offer()). Offering is faster, but
 * the memory stays resident until the kernel needs memory. Once a part of a chunk was offered, no
 * slice of the chunk is reported as reading zero. */
void page_heap_purge_lazily(void);

/* Limits the memory of the page heap to `bytes`; 0 removes the limit. An allocation beyond the
 * limit fails, and idle memory is purged when used and idle memory together exceed the limit.
 * Memory that is already handed out stays in use. Returns the previous limit, or 0 if there was
 * none. */
size_t page_heap_limit(size_t bytes);

/* --- dense chunks, for huge_page_collapse.h ---
 *
 * A chunk is dense if it is in use and, as far as is known, all its slices have been touched since
 * the chunk was mapped or given back. A huge page in its place takes no more memory. A chunk is
 * never dense
 *
 * - if its first slice belongs to a run that begins in an earlier chunk (a large block),
 * - if the program has less than 40 MiB in use, because the old pages and the huge page are both
 *   resident while the kernel copies,
 * - if the kernel was already asked for a huge page or small pages there (huge_page_timing.h), or
 * - if huge_page_timing.h says never to use huge pages.
 */

/* Returns whether the program has at least 40 MiB in use. The caller holds the lock. */
bool page_heap_is_large(void);

/* Decides anew which chunks are dense. */
void page_heap_look(void);

/* Returns the start of a chunk that was dense at two calls of page_heap_look() in a row. Marks the
 * chunk, so that it is returned only once. Returns NULL if there is no such chunk from chunk
 * `*from` on. Sets `*from` to the chunk where the next call continues. */
void *page_heap_take_dense(size_t *from);

/* Called before a chunk is collapsed. If the chunk was advised to have small pages
 * (huge_page_unasked.h), lets the kernel turn it into a huge page, and returns true. */
bool page_heap_allow_huge(void *start);

/* Undoes page_heap_take_dense(): the chunk can be returned again after two more calls of
 * page_heap_look(). `allowed` is the result of page_heap_allow_huge(), which is undone as well. */
void page_heap_put_dense(void *start, bool allowed);

/* --- reused chunks, for huge_page_collapse.h ---
 *
 * A reuse of a chunk is an allocation whose run covers the whole chunk, when all slices of the
 * chunk are already dirty. A chunk is reused if it has had at least 4 reuses (REUSES in
 * page_heap_reused.c) since it was mapped, or since a part of it was last given back.
 */

/* Returns the start of a reused chunk that lies entirely within the caller's run, or NULL if there
 * is none. Takes no lock: the chunks within the run belong to the caller. */
void *page_heap_find_reused(size_t index, size_t slices);

/* Returns true if the caller may now make the chunk a huge page. In any case, sets the number of
 * its reuses to 0, and doubles the number that page_heap_find_reused() requires, up to 128. */
bool page_heap_take_reused(void *start);

/* Counts one reuse of each chunk that lies entirely within the run. The caller has kept the run and
 * now uses it again, which the page heap does not see. Takes no lock: the chunks belong to the
 * caller. */
void page_heap_count_reuse(size_t index, size_t slices);

struct page_heap_statistics {
    size_t mapped_slices;
    size_t used_slices;
    size_t idle_slices;  /* free and resident */
    size_t purged_bytes; /* total of memory that was given back */
    size_t purges;       /* system calls that gave memory back */
    size_t grown;        /* how often memory was mapped */
    size_t used_most;    /* peak of used_slices */
    size_t limit_slices; /* REGION_SLICES_MAX: no limit */
    size_t record_bytes; /* address space that the records take */
};
struct page_heap_statistics page_heap_statistics(void);

/* For fork: nothing changes between the two calls. */
void page_heap_lock(void);
void page_heap_unlock(void);

/* Returns whether a thread is within a function of this module, or between page_heap_lock() and
 * page_heap_unlock(). */
bool page_heap_has_taken_lock(void);

/* Asserts the contract. Takes the lock. */
void page_heap_check(void) __attribute__((cold));

#endif
