#include "alloc/page_heap.h"

#include "alloc/broken.h"
#include "alloc/chunk.h"
#include "alloc/free_map.h"
#include "alloc/huge_page_density.h"
#include "alloc/huge_page_timing.h"
#include "alloc/huge_page_unasked.h"
#include "base/bitmap.h"
#include "os/lock.h"
#include "os/os.h"

enum {
    LONG_SLICES = 16,  /* 256 KiB: shorter runs lie within a chunk */
    REFUSALS_MOST = 8, /* refused chunks after which a purge ends */

    /* Most free slices that are searched behind a run: 64 MiB. More could map as many addresses
     * again as the program needs. A longer block grows by a move of its pages. */
    ROOM_MOST = (64 << 20) / SLICE_BYTES,
    FAR_SLICES = 1 << 13, /* 128 MiB: from this alignment on, use allocate_far() */
};

static struct lock lock;
static struct page_heap_statistics statistics = {.limit_slices = REGION_SLICES_MAX};
static bool lazy;            /* a purge only offers memory to the kernel: os_offer() */
static size_t idle_least;    /* lowest idle_slices since the epoch began */
static size_t moving_slices; /* used slices whose pages are being moved */
static size_t fresh_slices;  /* slices ever handed out that were not dirty */

/* --- marking slices as used ------------------------------------------------------------------- */

/* Returns how many of the `count` slices in `run` are dirty. Usually all of them are dirty, or none
 * is. */
static unsigned dirty_of(bitmap_wide dirty, bitmap_wide run, unsigned count)
{
    bitmap_wide both = dirty & run;
    return both == 0 ? 0 : both == run ? count : bitmap_count(both);
}

/* Marks `count` free slices of a chunk as used. Returns how many of them were dirty. */
static unsigned take(size_t number, unsigned first, unsigned count)
{
    struct chunk *chunk = chunk_of(number);
    bitmap_wide run = bitmap_run(first, count);
    bitmap_wide dirty = bitmap_load(&chunk->dirty);
    bitmap_store(&chunk->used, bitmap_load(&chunk->used) | run);
    bitmap_store(&chunk->dirty, dirty | run);
    chunk->used_count = (uint16_t)(chunk->used_count + count);
    chunk_took(number);
    return dirty_of(dirty, run, count);
}

/* Like take(), for all slices of a chunk. */
static unsigned take_whole(size_t number)
{
    struct chunk *chunk = chunk_of(number);
    unsigned dirty = dirty_of(bitmap_load(&chunk->dirty), ~(bitmap_wide)0, CHUNK_SLICES);
    if (dirty == CHUNK_SLICES && chunk->reused < UINT8_MAX)
        chunk->reused++;
    bitmap_store(&chunk->used, ~(bitmap_wide)0);
    bitmap_store(&chunk->dirty, ~(bitmap_wide)0);
    chunk->used_count = CHUNK_SLICES;
    chunk_took_all(number);
    return dirty;
}

/* Updates the statistics after `slices` slices were handed out, of which `dirty` were dirty. */
static void count_taken(size_t slices, size_t dirty)
{
    statistics.used_slices += slices;
    statistics.idle_slices -= dirty;
    fresh_slices += slices - dirty;
    if (statistics.idle_slices < idle_least)
        idle_least = statistics.idle_slices;
    if (statistics.used_slices > statistics.used_most)
        statistics.used_most = statistics.used_slices;
}

/* Marks `slices` slices from `index` on as used, across chunks. `inside` is true if their run
 * begins before `index`. Returns whether all of them read as zero. */
static bool take_all(size_t index, size_t slices, bool inside)
{
    size_t dirty = 0;
    bool offered = false;
    for (size_t left = slices; left > 0; inside = true) {
        size_t number = index / CHUNK_SLICES;
        unsigned first = (unsigned)(index % CHUNK_SLICES);
        unsigned count = left < CHUNK_SLICES - first ? (unsigned)left : CHUNK_SLICES - first;
        dirty += count == CHUNK_SLICES ? take_whole(number) : take(number, first, count);
        offered |= chunk_of(number)->offered;
        if (first == 0)
            chunk_of(number)->inside = inside;
        index += count;
        left -= count;
    }
    count_taken(slices, dirty);
    return dirty == 0 && !offered;
}

/* --- finding a place -------------------------------------------------------------------------- */

/* Adds `count` chunks that the region has mapped. All their slices are free. */
static void add_chunks(size_t first, size_t count)
{
    statistics.grown++;
    statistics.mapped_slices += count * CHUNK_SLICES;
    if (first == 0) { /* slice 0 is never handed out or touched */
        bitmap_store(&chunk_of(0)->used, bitmap_run(0, 1));
        chunk_of(0)->used_count = 1;
    }
    free_map_grow(chunk_end());
    huge_page_unasked_grown(first * CHUNK_SLICES, count * CHUNK_SLICES);
    for (size_t number = first; number < first + count; number++)
        chunk_gave(number);
}

/* Maps at least `chunks` more chunks, which are free. Returns false if the machine refuses
 * memory. */
static bool grow(size_t chunks)
{
    size_t got;
    size_t first = region_grow(chunks, &got);
    if (got == 0)
        return false;
    add_chunks(first, got);
    return true;
}

/* Returns whether `slices` slices from `index` on are mapped and free. */
static bool free_at(size_t index, size_t slices)
{
    while (slices > 0) {
        size_t number = index / CHUNK_SLICES;
        unsigned first = (unsigned)(index % CHUNK_SLICES);
        unsigned count = slices < CHUNK_SLICES - first ? (unsigned)slices : CHUNK_SLICES - first;
        if (number >= chunk_end() || free_map.chunks[number].longest == 0 ||
            (bitmap_load(&chunk_of(number)->used) & bitmap_run(first, count)) != 0)
            return false;
        index += count;
        slices -= count;
    }
    return true;
}

/* Returns the grain of a run as a shift. A long run should begin at a multiple of its grain, a
 * power of two that is at most an eighth of its length. Runs that come and go then begin where
 * other runs began, on pages that are already resident. */
static unsigned grain_shift(size_t slices)
{
    return slices < 16                  ? 0
           : slices >= 8 * CHUNK_SLICES ? 7
                                        : 60 - (unsigned)__builtin_clzll(slices);
}

/* Returns the lowest place within the chunk where `slices` slices are free. Prefers a place at a
 * multiple of the grain. Returns 0 if there is no place. */
static size_t start_in(size_t number, size_t slices)
{
    bitmap_wide starts = bitmap_starts(~bitmap_load(&chunk_of(number)->used), (unsigned)slices);
    bitmap_wide grains = starts & bitmap_multiples(grain_shift(slices));
    return starts == 0 ? 0 : number * CHUNK_SLICES + bitmap_lowest(grains != 0 ? grains : starts);
}

/* Returns the lowest place for a run that begins in the free slices at the chunk's end and
 * continues in the next chunks. Prefers a place at a multiple of the grain. */
static size_t start_from(size_t number, size_t slices)
{
    unsigned shift = grain_shift(slices);
    size_t lowest = (number + 1) * CHUNK_SLICES - free_map.chunks[number].at_end;
    size_t grain = (lowest + ((size_t)1 << shift) - 1) >> shift << shift;
    return grain > lowest && !free_at(lowest + slices, grain - lowest) ? lowest : grain;
}

/* Finds the lowest place for a long run, without marking it as used. Returns 0 if the machine
 * refuses memory. */
static size_t find_long(size_t slices)
{
    for (;;) {
        size_t number = free_map_find(slices);
        if (number == FREE_MAP_NONE) {
            if (!grow((slices - free_map_at_end() + CHUNK_SLICES - 1) / CHUNK_SLICES))
                return 0;
        } else if (free_map.chunks[number].longest < slices) {
            return start_from(number, slices);
        } else {
            size_t index = start_in(number, slices);
            if (index != 0)
                return index;
            chunk_exactly(number); /* `longest` was too high a bound */
        }
    }
}

/* Like find_long(), for a run that lies within one chunk. */
static size_t find_short(size_t slices)
{
    size_t number = chunk_find(slices);
    if (number != CHUNK_NONE)
        return number * CHUNK_SLICES +
               bitmap_lowest(
                   bitmap_starts(~bitmap_load(&chunk_of(number)->used), (unsigned)slices));
    while ((number = free_map_find_empty()) == FREE_MAP_NONE)
        if (!grow(1))
            return 0;
    return number * CHUNK_SLICES;
}

/* --- huge pages ------------------------------------------------------------------------------- */

enum {
    /* A program is large if it uses at least this many chunks. One chunk is then at most a
     * twentieth of its memory. */
    HUGE_CHUNKS_LEAST = 20,

    /* Slices by which the program must have grown since the last purge to count as growing. */
    HUGE_GROWTH = (64 << 20) / SLICE_BYTES,

    /* A run longer than this often does not fit into the rest of a chunk, which then stays
     * unused. */
    HUGE_RUN_MOST = (128 << 10) / SLICE_BYTES,

    /* A program must use this many chunks before pages are touched to measure the time of a page
     * fault. */
    SMALL_CHUNKS_LEAST = 2,
};

static size_t used_at_purge; /* used_slices at the last purge */

/* The kind of pages that begin_chunk() chose for a new chunk, during the call that holds the lock.
 * BEGUN_NONE if no chunk was begun whose first touch is to be timed. */
static enum begun { BEGUN_NONE, BEGUN_SMALL, BEGUN_HUGE } begun;

bool page_heap_is_large(void)
{
    return statistics.used_slices >= (size_t)HUGE_CHUNKS_LEAST * CHUNK_SLICES;
}

/* Returns whether new chunks may have huge pages. If the machine's setting is `always`, this does
 * not depend on the size of the program. */
static bool may_use_huge_pages(void)
{
    return page_heap_is_large() || huge_page_unasked_is_always();
}

/* Returns whether a chunk that is begun will probably be full soon: the program grows, and runs of
 * this length fill chunks without gaps. */
static bool is_growing(size_t slices)
{
    return slices <= HUGE_RUN_MOST &&
           (statistics.purges == 0 || statistics.used_slices >= used_at_purge + HUGE_GROWTH);
}

static bool is_untouched(const struct chunk *chunk)
{
    return chunk->used_count == 0 && bitmap_load(&chunk->dirty) == 0 && !chunk->offered;
}

/* Decides between huge and small pages for an untouched chunk, at whose start a run is allocated. A
 * huge page takes one page fault instead of 512. Small pages do not make memory resident that is
 * never used. A huge page that was requested earlier stays requested while the program is large. */
static void begin_chunk(size_t number, size_t slices)
{
    struct chunk *chunk = chunk_of(number);
    void *start = region_address(number * CHUNK_SLICES);
    bool is_wanted = may_use_huge_pages() && (chunk->huge || is_growing(slices)) &&
                     huge_page_density_suffices(slices, statistics.used_slices / CHUNK_SLICES) &&
                     huge_page_may_be_requested();
    if (chunk->huge && !is_wanted) {
        chunk_want_small(number);
    } else if (!chunk->huge && is_wanted && os_want_huge_pages(start, CHUNK_BYTES)) {
        chunk->huge = true;
        chunk->small = chunk->forbidden = false;
    }
    if (!chunk->huge && slices <= HUGE_RUN_MOST)
        huge_page_density_sample(number);
    if (chunk->huge)
        begun = BEGUN_HUGE;
    else if (statistics.used_slices >= (size_t)SMALL_CHUNKS_LEAST * CHUNK_SLICES)
        begun = BEGUN_SMALL;
}

/* Called for runs that begin_chunk() does not handle. Lets a long run have huge pages
 * (huge_page_unasked.h). If the program is not large, requests small pages for the untouched chunks
 * of any other run for which huge pages were requested earlier. */
static void begin_chunks(size_t index, size_t slices)
{
    if (huge_page_unasked_is_long(slices)) {
        huge_page_unasked_allow(index, slices);
        return;
    }
    if (page_heap_is_large())
        return;
    for (size_t number = index / CHUNK_SLICES; number <= (index + slices - 1) / CHUNK_SLICES;
         number++)
        if (chunk_of(number)->huge && is_untouched(chunk_of(number)))
            chunk_want_small(number);
}

/* Touches the first pages of a new run and learns from the time this takes (huge_page_timing.h).
 * Called without the lock, before the run is handed out. */
static void learn(size_t index, size_t slices, enum begun how)
{
    char *start = region_address(index);
    if (how == BEGUN_HUGE)
        huge_page_time_huge(start);
    else if (slices * SLICE_BYTES > os_page_bytes())
        huge_page_time_small(start);
}

/* --- allocating and freeing ------------------------------------------------------------------- */

/* Allocates a run with `room` free slices behind it, which stay free. Returns 0 if the machine
 * refuses memory. */
static size_t allocate(size_t slices, size_t room, bool *zero)
{
    /* Maps chunk 0 before the search. The search for an empty chunk would map chunk 0 and then
     * chunk 1, because chunk 0 is never empty. */
    if (chunk_end() == 0 && !grow(1))
        return 0;
    size_t index =
        slices + room < LONG_SLICES ? find_short(slices + room) : find_long(slices + room);
    if (index == 0)
        return 0;
    if (index % CHUNK_SLICES == 0 && slices <= CHUNK_SLICES &&
        is_untouched(chunk_of(index / CHUNK_SLICES)))
        begin_chunk(index / CHUNK_SLICES, slices);
    else
        begin_chunks(index, slices);
    *zero = take_all(index, slices, false);
    return index;
}

static void check_used(bool used, size_t index)
{
    if (UNLIKELY(!used))
        broken("slices are freed that are not in use", region_address(index));
}

/* Marks `count` used slices of a chunk as free. The first of them is `index`, slice `first` of the
 * chunk. */
static void drop(size_t index, unsigned first, unsigned count)
{
    struct chunk *chunk = chunk_of(index / CHUNK_SLICES);
    bitmap_wide run = bitmap_run(first, count);
    bitmap_wide used = bitmap_load(&chunk->used);
    check_used((used & run) == run, index);
    bitmap_store(&chunk->used, used ^ run);
    chunk->used_count = (uint16_t)(chunk->used_count - count);
    chunk_gave(index / CHUNK_SLICES);
}

/* Like drop(), for all slices of a chunk. */
static void drop_whole(size_t index)
{
    struct chunk *chunk = chunk_of(index / CHUNK_SLICES);
    check_used(chunk->used_count == CHUNK_SLICES, index);
    bitmap_store(&chunk->used, 0);
    chunk->used_count = 0;
    chunk_gave_all(index / CHUNK_SLICES);
}

/* Marks used slices as free, across chunks. They count as idle, because every used slice is
 * dirty. */
static void release(size_t index, size_t slices)
{
    statistics.used_slices -= slices;
    statistics.idle_slices += slices;
    while (slices > 0) {
        unsigned first = (unsigned)(index % CHUNK_SLICES);
        unsigned count = slices < CHUNK_SLICES - first ? (unsigned)slices : CHUNK_SLICES - first;
        if (first == 0)
            chunk_of(index / CHUNK_SLICES)->inside = false;
        if (count == CHUNK_SLICES)
            drop_whole(index);
        else
            drop(index, first, count);
        index += count;
        slices -= count;
    }
    if (index % CHUNK_SLICES == 0 && index / CHUNK_SLICES < chunk_end() &&
        chunk_of(index / CHUNK_SLICES)->inside)
        chunk_of(index / CHUNK_SLICES)->inside = false;
}

/* Resets what is known about a chunk, part of which is no longer resident. */
static void forget(struct chunk *chunk)
{
    chunk->dense = 0;
    chunk->reused = 0;
    chunk->told = 0;
}

/* Marks idle slices as not dirty, across chunks. */
static void clean(size_t index, size_t slices)
{
    statistics.idle_slices -= slices;
    while (slices > 0) {
        struct chunk *chunk = chunk_of(index / CHUNK_SLICES);
        unsigned first = (unsigned)(index % CHUNK_SLICES);
        unsigned count = slices < CHUNK_SLICES - first ? (unsigned)slices : CHUNK_SLICES - first;
        bitmap_store(&chunk->dirty, bitmap_load(&chunk->dirty) & ~bitmap_run(first, count));
        forget(chunk);
        index += count;
        slices -= count;
    }
}

static void purge_to(size_t keep_slices);

static bool within_limit(size_t more_slices)
{
    return more_slices <= statistics.limit_slices &&
           statistics.used_slices <= statistics.limit_slices - more_slices;
}

/* Called after a run was handed out, or when the limit changes. Purges idle memory if used and idle
 * memory together exceed the limit. */
static void keep_limit(void)
{
    if (UNLIKELY(statistics.used_slices + statistics.idle_slices > statistics.limit_slices))
        purge_to(statistics.limit_slices > statistics.used_slices
                     ? statistics.limit_slices - statistics.used_slices
                     : 0);
}

/* Hands out a run for page_heap_allocate(). The pages of `leaving` used slices will be moved to it,
 * so these slices no longer count as used if a run is handed out. */
static size_t hand_out(size_t slices, size_t room, size_t leaving, bool *zero)
{
    size_t index = 0;
    statistics.used_slices -= leaving;
    if (within_limit(slices)) {
        index = allocate(slices, room, zero);
        if (index == 0 && room > 0)
            index = allocate(slices, 0, zero);
        keep_limit();
    }
    if (index == 0)
        statistics.used_slices += leaving;
    else
        moving_slices += leaving;
    return index;
}

static size_t allocate_and_learn(size_t slices, size_t room, size_t leaving, bool *zero)
{
    if (slices == 0 || slices >= REGION_SLICES_MAX || room >= REGION_SLICES_MAX)
        return 0;
    room = room < ROOM_MOST ? room : ROOM_MOST;
    lock_take(&lock);
    begun = BEGUN_NONE;
    size_t index = hand_out(slices, room, leaving, zero);
    enum begun how = begun;
    lock_drop(&lock);
    if (UNLIKELY(how != BEGUN_NONE))
        learn(index, slices, how);
    return index;
}

size_t page_heap_allocate(size_t slices, size_t room, bool *zero)
{
    return allocate_and_learn(slices, room, 0, zero);
}

/* Takes back a superfluous part of a run that was handed out just now. If the whole run read as
 * zero, the part is clean again. Else all of it stays dirty, although some of it may be clean. */
static void cut_off(size_t index, size_t slices, bool zero)
{
    if (slices == 0)
        return;
    release(index, slices);
    if (zero) {
        clean(index, slices);
        fresh_slices -= slices;
    }
}

/* Allocates a run at a multiple of `unit` slices: at the first free one, or else on new chunks. For
 * a large unit, this is quicker than to allocate `unit` - 1 slices more and free them again.
 * Returns 0 if the machine refuses memory. */
static size_t allocate_far(size_t slices, size_t unit, bool *zero)
{
    if (chunk_end() == 0 && !grow(1))
        return 0;
    size_t index = unit - (region.base >> SLICE_SHIFT) % unit;
    while (index + slices <= chunk_end() * CHUNK_SLICES && !free_at(index, slices))
        index += unit;
    if (index + slices > chunk_end() * CHUNK_SLICES) {
        size_t chunks = (slices + CHUNK_SLICES - 1) / CHUNK_SLICES;
        index = region_grow_aligned(chunks, unit);
        if (index == 0)
            return 0;
        add_chunks(index / CHUNK_SLICES, chunks);
    }
    begin_chunks(index, slices);
    *zero = take_all(index, slices, false);
    return index;
}

size_t page_heap_allocate_aligned(size_t slices, size_t alignment, bool *zero)
{
    size_t unit = alignment >> SLICE_SHIFT;
    if (slices == 0 || unit >= REGION_SLICES_MAX || slices >= REGION_SLICES_MAX - unit)
        return 0;
    lock_take(&lock);
    if (unit >= FAR_SLICES) {
        size_t far = within_limit(slices) ? allocate_far(slices, unit, zero) : 0;
        keep_limit();
        lock_drop(&lock);
        return far;
    }
    size_t most = statistics.used_most;
    size_t index = within_limit(slices) ? allocate(slices + unit - 1, 0, zero) : 0;
    if (index != 0) {
        bool advised = huge_page_unasked_is_long(slices + unit - 1);
        if (advised)
            huge_page_unasked_forbid(index, slices + unit - 1);
        size_t misses = (region.base >> SLICE_SHIFT) + index;
        size_t head = (unit - misses % unit) % unit;
        cut_off(index, head, *zero);
        cut_off(index + head + slices, unit - 1 - head, *zero);
        statistics.used_most = most > statistics.used_slices ? most : statistics.used_slices;
        index += head;
        if (advised && huge_page_unasked_is_long(slices))
            huge_page_unasked_allow(index, slices);
        keep_limit();
    }
    lock_drop(&lock);
    return index;
}

static struct page_heap_level level(bool ends_epoch)
{
    lock_take(&lock);
    struct page_heap_level now = {
        .use = {statistics.used_slices, statistics.idle_slices},
        .idle_least = idle_least,
        .fresh = fresh_slices,
        .is_lazy = lazy,
    };
    if (ends_epoch)
        idle_least = statistics.idle_slices;
    lock_drop(&lock);
    return now;
}

struct page_heap_level page_heap_level(void)
{
    return level(false);
}

struct page_heap_level page_heap_epoch(void)
{
    return level(true);
}

struct page_heap_use page_heap_free(size_t index, size_t slices)
{
    lock_take(&lock);
    release(index, slices);
    if (huge_page_unasked_is_long(slices))
        huge_page_unasked_forbid(index, slices);
    struct page_heap_use use = {statistics.used_slices, statistics.idle_slices};
    lock_drop(&lock);
    return use;
}

/* Does the work of page_heap_end_move(), or of page_heap_free_clean() if `moved_slices` is 0. */
static void free_clean(size_t moved_slices, size_t index, size_t slices, bool renewed)
{
    lock_take(&lock);
    statistics.used_slices += moved_slices;
    moving_slices -= moved_slices;
    size_t end = (index + slices + CHUNK_SLICES - 1) / CHUNK_SLICES;
    for (size_t number = index / CHUNK_SLICES; renewed && number < end; number++)
        chunk_of(number)->huge = chunk_of(number)->small = false;
    if (renewed)
        huge_page_unasked_grown(index, slices);
    if (slices > 0) {
        release(index, slices);
        clean(index, slices);
    }
    if (statistics.used_slices > statistics.used_most)
        statistics.used_most = statistics.used_slices;
    lock_drop(&lock);
}

void page_heap_free_clean(size_t index, size_t slices, bool renewed)
{
    free_clean(0, index, slices, renewed);
}

void page_heap_end_move(size_t moved_slices, size_t index, size_t slices)
{
    free_clean(moved_slices, index, slices, slices > 0);
}

size_t page_heap_begin_move(size_t index, size_t slices, size_t to_slices)
{
    bool zero;
    size_t to = allocate_and_learn(to_slices, to_slices, slices, &zero);
    if (to != 0 && huge_page_unasked_is_long(to_slices)) {
        lock_take(&lock);
        huge_page_unasked_allow(index, slices);
        lock_drop(&lock);
    }
    return to;
}

bool page_heap_extend(size_t index, size_t slices, size_t more, bool *zero)
{
    lock_take(&lock);
    size_t from = index + slices;
    bool fits = more > 0 && more < REGION_SLICES_MAX && within_limit(more) && free_at(from, more);
    if (fits) {
        *zero = take_all(from, more, true);
        if (huge_page_unasked_is_long(slices + more))
            huge_page_unasked_allow(index, slices + more);
        keep_limit();
    }
    lock_drop(&lock);
    return fits;
}

/* --- giving back ------------------------------------------------------------------------------ */

/* Gives free slices of one chunk back to the machine, or offers them. Returns false if the machine
 * refuses. */
static bool give_back(size_t index, size_t slices)
{
    void *start = region_address(index);
    bool done =
        lazy ? os_offer(start, slices << SLICE_SHIFT) : os_give_back(start, slices << SLICE_SHIFT);
    if (lazy)
        chunk_of(index / CHUNK_SLICES)->offered = true;
    statistics.purges++;
    used_at_purge = statistics.used_slices;
    if (done)
        statistics.purged_bytes += slices << SLICE_SHIFT;
    return done;
}

bool page_heap_trim(void *start, size_t bytes)
{
    size_t first = region_index(start) / CHUNK_SLICES;
    size_t last = region_index((char *)start + bytes - 1) / CHUNK_SLICES;
    lock_take(&lock);
    bool done = lazy ? os_offer(start, bytes) : os_give_back(start, bytes);
    statistics.purges++;
    statistics.purged_bytes += done ? bytes : 0;
    used_at_purge = statistics.used_slices;
    /* Else the kernel (khugepaged) could later make all pages of the chunk resident again. */
    for (size_t number = first; number <= last; number++)
        if (chunk_of(number)->huge)
            chunk_want_small(number);
    lock_drop(&lock);
    return done;
}

/* Gives back all of an empty chunk with a huge page, in which even slices that are not dirty are
 * resident. Returns false if the machine refuses. */
static bool purge_huge(size_t number)
{
    struct chunk *chunk = chunk_of(number);
    if (!give_back(number * CHUNK_SLICES, CHUNK_SLICES))
        return false;
    statistics.idle_slices -= bitmap_count(bitmap_load(&chunk->dirty));
    bitmap_store(&chunk->dirty, 0);
    forget(chunk);
    return true;
}

/* Gives back all idle slices of a chunk, run by run. A free slice that is not dirty may be resident
 * in two cases: the chunk has a huge page, or an OS page holds several slices. Returns false if the
 * machine refuses. */
static bool purge_chunk(size_t number)
{
    struct chunk *chunk = chunk_of(number);
    bitmap_wide dirty = bitmap_load(&chunk->dirty);
    if (chunk->used_count == 0 && chunk->huge && dirty != 0)
        return purge_huge(number);
    bitmap_wide resident = chunk->huge ? ~(bitmap_wide)0 : ~chunk_whole_pages(~dirty);
    bitmap_wide idle = chunk_whole_pages(resident & ~bitmap_load(&chunk->used));
    if ((idle & dirty) == 0)
        return true;
    while (idle != 0) {
        unsigned first = bitmap_lowest(idle);
        bitmap_wide behind = ~(idle >> first);
        unsigned count = behind == 0 ? BITMAP_BITS : bitmap_lowest(behind);
        bitmap_wide run = bitmap_run(first, count);
        if (!give_back(number * CHUNK_SLICES + first, count))
            break;
        statistics.idle_slices -= bitmap_count(dirty & run);
        dirty &= ~run;
        bitmap_store(&chunk->dirty, dirty);
        idle &= ~run;
    }
    forget(chunk);
    return idle == 0;
}

/* Purges until at most `keep_slices` slices are idle. A chunk that the machine refuses to take, for
 * example because it is locked, is skipped, because the machine may take other chunks. After
 * REFUSALS_MOST refused chunks the function gives up, and the next call looks at these last. */
static void purge_to(size_t keep_slices)
{
    static size_t skipped; /* chunks at the end that were looked at last */
    size_t end = chunk_end(), first = end > skipped ? end - skipped : end;
    unsigned left = REFUSALS_MOST;
    skipped = 0;
    for (int round = 0; round < 2; round++) /* empty chunks first, then all others */
        for (size_t i = 0; i < end && statistics.idle_slices > keep_slices && left > 0; i++) {
            size_t number = i < first ? first - 1 - i : end - 1 - (i - first);
            if ((chunk_of(number)->used_count == 0) != (round == 0))
                continue;
            if (!purge_chunk(number)) {
                left--;
                skipped = left == 0 ? end - number : 0;
            }
        }
    if (statistics.idle_slices < idle_least)
        idle_least = statistics.idle_slices;
}

size_t page_heap_purge(size_t keep_bytes)
{
    lock_take(&lock);
    size_t before = statistics.purged_bytes;
    purge_to(keep_bytes >> SLICE_SHIFT);
    size_t purged = statistics.purged_bytes - before;
    lock_drop(&lock);
    return purged;
}

void page_heap_purge_lazily(void)
{
    lock_take(&lock);
    lazy = true;
    lock_drop(&lock);
}

size_t page_heap_limit(size_t bytes)
{
    lock_take(&lock);
    size_t before =
        statistics.limit_slices < REGION_SLICES_MAX ? statistics.limit_slices << SLICE_SHIFT : 0;
    bool none = bytes == 0 || bytes >> SLICE_SHIFT >= REGION_SLICES_MAX;
    size_t slices = bytes < SLICE_BYTES ? 1 : bytes >> SLICE_SHIFT; /* 0 would mean no limit */
    statistics.limit_slices = none ? REGION_SLICES_MAX : slices;
    keep_limit();
    lock_drop(&lock);
    return before;
}

struct page_heap_statistics page_heap_statistics(void)
{
    lock_take(&lock);
    struct page_heap_statistics copy = statistics;
    copy.record_bytes = region_record_bytes();
    lock_drop(&lock);
    return copy;
}

void page_heap_lock(void)
{
    lock_take(&lock);
}

bool page_heap_has_taken_lock(void)
{
    return lock_is_taken(&lock);
}

void page_heap_unlock(void)
{
    lock_drop(&lock);
}

void page_heap_check(void)
{
    lock_take(&lock);
    region_check();
    size_t used = 0;
    size_t idle = 0;
    /* If chunk 0 is mapped, its first slice is marked as used, but is never handed out. */
    size_t never = chunk_end() > 0 && chunk_of(0)->used_count > 0;
    for (size_t number = 0; number < chunk_end(); number++) {
        struct chunk *chunk = chunk_of(number);
        bitmap_wide map = bitmap_load(&chunk->used);
        used += bitmap_count(map);
        idle += bitmap_count(bitmap_load(&chunk->dirty) & ~map);
        CHECK_THAT((map & ~bitmap_load(&chunk->dirty)) == (bitmap_wide)(number == 0 && never));
        chunk_check(number);
    }
    free_map_check();
    CHECK_THAT(used == statistics.used_slices + moving_slices + never);
    CHECK_THAT(idle == statistics.idle_slices);
    lock_drop(&lock);
}
