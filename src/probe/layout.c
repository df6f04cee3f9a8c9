#include "probe/layout.h"

#include "base/ticks.h"
#include "probe/direct_syscall.h"
#include "probe/freed_sample.h"
#include "probe/futex_lock.h"
#include "probe/handed_out.h"
#include "probe/line_watch.h"
#include "probe/live.h"
#include "probe/own_memory.h"
#include "probe/own_stack.h"
#include "probe/residence.h"
#include "probe/session.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

enum {
    REGION_GRANULES = LAYOUT_REGION_BYTES >> HANDED_OUT_GRANULE_SHIFT,
    REGION_WORDS = REGION_GRANULES / 64,
    DIRECTORY_SHIFT = 15, /* log2 of the regions of one directory, 1 GiB in all */
    DIRECTORIES = 1 << (47 - LAYOUT_REGION_SHIFT - DIRECTORY_SHIFT),
};

/* Tracking takes one part in 66 of the CPU time, or one part in 12 if the layout is "thorough". */
enum { SAMPLED_ONE_IN = 66, THOROUGH_ONE_IN = 12 };

enum cell_state { NEVER, LIVE, FREED };

/* A granule at which a block begins or began. */
struct cell {
    uint32_t value;  /* LIVE: the requested bytes, at most UINT32_MAX */
    uint16_t thread; /* the thread that allocated or freed the block */
    uint8_t state;   /* enum cell_state */
    /* 1: the last block that was freed here was freed by another thread than its owner. */
    uint8_t remote;
};
static_assert(sizeof(struct cell) == 8, "half of the live memory, if every region is tracked");

struct region {
    uintptr_t number; /* address of the region >> LAYOUT_REGION_SHIFT */
    struct region *next;
    /* The block that begins before the region and touches it; `head` is 0 if there is none. */
    uintptr_t head;
    size_t head_bytes;
    uint16_t head_thread;
    uint64_t live[REGION_WORDS];  /* a bit is set if a live block begins at the granule */
    uint64_t begun[REGION_WORDS]; /* a bit is set if the cell was ever written */
    struct cell cells[REGION_GRANULES];
};

struct directory {
    _Atomic(struct region *) regions[1 << DIRECTORY_SHIFT];
};

uint8_t layout_way;

static struct layout_file *file;
static _Atomic(struct directory *) directories[DIRECTORIES];

/* Protects everything below and the file. */
static struct futex_lock lock;
static struct region *tracked; /* list of the tracked regions */
static struct region *spare;   /* list of unused regions */
static uint64_t tracked_regions, tracked_blocks, tracked_bytes;
static uint64_t next_snapshot; /* a snapshot is due if tracked_bytes is larger */
static uint64_t threshold;     /* regions with a smaller hash (of 32 bits) are tracked */
static uint64_t seed;
static struct random lots;
static uint64_t spent_ticks; /* see spend() */
static uint64_t one_in;      /* see spend() */

/* Numbers of blocks that are the head of a tracked region, by a hash of their address.
 * layout_remove() searches the regions for a block only if the number for its hash is not 0. */
static _Atomic uint16_t heads[4096];

/* --- regions ---------------------------------------------------------------------------------- */

static uint64_t hash_of(uintptr_t number)
{
    struct random random = random_of(seed ^ (uint64_t)number * UINT64_C(0x9e3779b97f4a7c15));
    return random_next(&random) >> 32;
}

static _Atomic uint16_t *head_count(uintptr_t block)
{
    return &heads[(block * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - 12)];
}

static struct region *region_at(uintptr_t number)
{
    struct directory *directory = atomic_load_explicit(
        &directories[(number >> DIRECTORY_SHIFT) % DIRECTORIES], memory_order_acquire);
    if (directory == NULL)
        return NULL;
    return atomic_load_explicit(&directory->regions[number % (1 << DIRECTORY_SHIFT)],
                                memory_order_acquire);
}

/* Returns an unused region. A mapping holds twice as many regions as the one before it, up to a
 * limit, because own_memory.h remembers few mappings. */
static struct region *new_region(void)
{
    static size_t count = 32, left;
    static struct region *mapped;
    struct region *region = spare;
    if (region != NULL) {
        spare = region->next;
        return region;
    }
    if (left == 0) {
        mapped = own_memory_map_sparse(count * sizeof *mapped);
        left = mapped != NULL ? count : 0;
        count = count < 4096 ? count * 2 : count;
    }
    if (left == 0)
        return NULL;
    left--;
    return mapped++;
}

static void hide(const struct region *region)
{
    uintptr_t start = region->number << LAYOUT_REGION_SHIFT;
    (void)handed_out_hide(start - LAYOUT_MARGIN, LAYOUT_MARGIN + LAYOUT_REGION_BYTES);
}

/* Begins to track a region. No block of it was seen before. Returns NULL if there is no memory. */
static struct region *track(uintptr_t number)
{
    _Atomic(struct directory *) *place = &directories[(number >> DIRECTORY_SHIFT) % DIRECTORIES];
    struct directory *directory = atomic_load_explicit(place, memory_order_relaxed);
    if (directory == NULL) {
        directory = own_memory_map_sparse(sizeof *directory);
        atomic_store_explicit(place, directory, memory_order_release /* for region_at() */);
    }
    struct region *region = directory != NULL ? new_region() : NULL;
    if (region == NULL)
        return NULL;
    region->number = number;
    region->next = tracked;
    tracked = region;
    tracked_regions++;
    hide(region);
    atomic_store_explicit(&directory->regions[number % (1 << DIRECTORY_SHIFT)], region,
                          memory_order_release /* for region_at() */);
    return region;
}

static uint32_t live_blocks(const struct region *region)
{
    uint32_t count = 0;
    for (size_t i = 0; i < REGION_WORDS; i++)
        count += (uint32_t)__builtin_popcountll(region->live[i]);
    return count;
}

static void drop_head(struct region *region)
{
    if (region->head != 0)
        atomic_fetch_sub_explicit(head_count(region->head), 1, memory_order_relaxed);
    region->head = 0;
}

/* Clears the cells that were written and all other fields. Does not touch the other cells, so that
 * their pages need no memory. */
static void clear(struct region *region)
{
    for (size_t word = 0; word < REGION_WORDS; word++)
        for (uint64_t bits = region->begun[word]; bits != 0; bits &= bits - 1)
            region->cells[word * 64 + (size_t)__builtin_ctzll(bits)] =
                (struct cell){.state = NEVER};
    memset(region, 0, offsetof(struct region, cells));
}

/* Stops tracking the region that `*link` points to. */
static void forget(struct region **link)
{
    struct region *region = *link;
    struct directory *directory = atomic_load_explicit(
        &directories[(region->number >> DIRECTORY_SHIFT) % DIRECTORIES], memory_order_relaxed);
    atomic_store_explicit(&directory->regions[region->number % (1 << DIRECTORY_SHIFT)], NULL,
                          memory_order_relaxed);
    *link = region->next;
    uintptr_t start = region->number << LAYOUT_REGION_SHIFT;
    handed_out_show(start - LAYOUT_MARGIN, LAYOUT_MARGIN + LAYOUT_REGION_BYTES);
    freed_sample_hide(start - LAYOUT_MARGIN, LAYOUT_MARGIN + LAYOUT_REGION_BYTES);
    drop_head(region);
    tracked_regions--;
    tracked_blocks -= live_blocks(region);
    clear(region);
    region->next = spare;
    spare = region;
}

static void mark_again(const struct region *region)
{
    hide(region);
    if (region->head != 0)
        watched_mark((const void *)region->head);
    for (size_t word = 0; word < REGION_WORDS; word++)
        for (uint64_t bits = region->live[word]; bits != 0; bits &= bits - 1) {
            size_t granule = word * 64 + (size_t)__builtin_ctzll(bits);
            watched_mark((const void *)((region->number << LAYOUT_REGION_SHIFT) +
                                        (granule << HANDED_OUT_GRANULE_SHIFT)));
        }
}

/* --- snapshots -------------------------------------------------------------------------------- */

/* State while a snapshot goes through the live blocks of one region. */
struct look {
    struct layout_page pages[LAYOUT_REGION_PAGES];
    uint32_t line;   /* 1 + the last line of the last block; 0: no block */
    uint16_t thread; /* thread of the first block on this line */
    bool passive;    /* a block on this line has cell.remote */
    bool shared;     /* this line has blocks of several threads */
};

static struct layout_page *page_of_line(struct look *look, uint32_t line)
{
    return &look->pages[line >> (LAYOUT_PAGE_SHIFT - LAYOUT_LINE_SHIFT)];
}

/* Adds a block that touches the bytes [from, to) of the region. Blocks come in the order of their
 * addresses. */
static void look_at(struct look *look, size_t from, size_t to, uint16_t thread, bool passive)
{
    for (size_t at = from, end; at < to; at = end) {
        end = (at | ((1 << LAYOUT_PAGE_SHIFT) - 1)) + 1;
        end = end < to ? end : to;
        struct layout_page *page = &look->pages[at >> LAYOUT_PAGE_SHIFT];
        page->bytes = (uint16_t)(page->bytes + (end - at));
    }
    uint32_t first = (uint32_t)(from >> LAYOUT_LINE_SHIFT);
    uint32_t last = (uint32_t)((to - 1) >> LAYOUT_LINE_SHIFT);
    if (look->line == first + 1) {
        struct layout_page *page = page_of_line(look, first);
        if (!look->shared && look->thread != thread) {
            look->shared = true;
            if (look->passive || passive)
                page->passive++;
            else
                page->active++;
        } else if (look->shared && !look->passive && passive) {
            page->active--;
            page->passive++;
        }
        look->passive |= passive;
        first++;
    }
    if (first > last)
        return;
    for (uint32_t line = first; line <= last; line++)
        page_of_line(look, line)->lines++;
    look->line = last + 1;
    look->thread = thread;
    look->passive = passive;
    look->shared = false;
}

static void look_at_region(const struct region *region, struct look *look)
{
    memset(look, 0, sizeof *look);
    if (region->head != 0) {
        size_t bytes = region->head + region->head_bytes - (region->number << LAYOUT_REGION_SHIFT);
        look_at(look, 0, bytes < LAYOUT_REGION_BYTES ? bytes : LAYOUT_REGION_BYTES,
                region->head_thread, false);
    }
    for (size_t word = 0; word < REGION_WORDS; word++)
        for (uint64_t bits = region->live[word]; bits != 0; bits &= bits - 1) {
            size_t granule = word * 64 + (size_t)__builtin_ctzll(bits);
            const struct cell *cell = &region->cells[granule];
            size_t from = granule << HANDED_OUT_GRANULE_SHIFT;
            size_t bytes = cell->value != 0 ? cell->value : 1;
            size_t to = bytes < LAYOUT_REGION_BYTES - from ? from + bytes : LAYOUT_REGION_BYTES;
            look->pages[from >> LAYOUT_PAGE_SHIFT].blocks++;
            look_at(look, from, to, cell->thread, cell->remote != 0);
        }
}

static void add_page(struct layout_file *to, const struct layout_page *page, uint32_t region)
{
    struct layout_totals *totals = &to->totals;
    if (page->lines == 0)
        return;
    totals->pages++;
    totals->lines += page->lines;
    totals->blocks += page->blocks;
    totals->bytes += page->bytes;
    totals->active += page->active;
    totals->passive += page->passive;
    if (totals->pages > LAYOUT_PAGES)
        return;
    to->pages[totals->pages - 1] = *page;
    to->pages[totals->pages - 1].region = region;
}

static void write_snapshot(uint64_t live_bytes)
{
    static struct look look; /* static: the stack may be small */
    uint64_t begin = ticks_now();
    __atomic_fetch_add(&file->writing, 1, __ATOMIC_SEQ_CST);
    file->totals = (struct layout_totals){.regions = 0};
    for (const struct region *region = tracked; region != NULL; region = region->next) {
        look_at_region(region, &look);
        uint64_t before = file->totals.pages;
        for (size_t i = 0; i < LAYOUT_REGION_PAGES; i++)
            add_page(file, &look.pages[i], (uint32_t)file->totals.regions);
        file->totals.regions += file->totals.pages != before;
    }
    file->page_count = file->totals.pages <= LAYOUT_PAGES ? file->totals.pages : 0;
    file->snapshot_ns = direct_now_ns() - session.head->ns_begin;
    file->snapshot_threshold = threshold;
    file->snapshot_bytes = live_bytes;
    __atomic_fetch_add(&file->writing, 1, __ATOMIC_SEQ_CST);
    spent_ticks += ticks_now() - begin;
}

/* Takes a snapshot if it is better than the kept one: it must have more live bytes. It must also
 * have ENOUGH regions, or as many regions as the kept one, or at least twice its live bytes. */
static void consider(void)
{
    enum { ENOUGH = 16 };
    uint64_t step = tracked_bytes / (layout_way == LAYOUT_EXACT ? 8 : 4);
    step = tracked_bytes + (step > 4096 ? step : 4096);
    next_snapshot = step > next_snapshot ? step : next_snapshot;
    if (session.head == NULL || tracked_regions == 0)
        return;
    struct live now = live_now();
    uint64_t kept = file->snapshot_bytes;
    bool regions = tracked_regions >= ENOUGH || tracked_regions >= file->totals.regions;
    /* The number of live bytes may be an estimate. If it is lower by up to twice its standard
     * error, it counts as higher, because later blocks are more typical of a program. */
    bool higher = now.bytes + 2 * now.error >= kept;
    if (file->snapshot_ns == 0 || (higher && (regions || now.bytes >= 2 * kept)))
        write_snapshot(now.bytes);
}

/* --- the threshold ---------------------------------------------------------------------------- */

static void set_threshold(uint64_t wanted)
{
    uint64_t begin = ticks_now();
    threshold = file->threshold = wanted;
    watched_unmark_all();
    uint64_t before = tracked_regions;
    for (struct region **link = &tracked; *link != NULL;) {
        if (hash_of((*link)->number) >= threshold)
            forget(link);
        else
            link = &(*link)->next;
    }
    for (struct region *region = tracked; region != NULL; region = region->next)
        mark_again(region);
    tracked_bytes = before != 0 ? tracked_bytes / before * tracked_regions : 0;
    next_snapshot = next_snapshot / 2;
    spent_ticks += ticks_now() - begin;
}

enum { LEAST = 1 << 16 };

/* Halves the threshold, and so the number of tracked regions. Does nothing if fewer than FEWEST
 * regions would be left, unless tracking has to take less time (`must`). If none is left, tracking
 * waits for a later region below the threshold. It ends if the threshold was already LEAST. */
static void fall(bool must)
{
    enum { FEWEST = 4 };
    uint64_t left = 0;
    for (const struct region *region = tracked; region != NULL; region = region->next)
        left += hash_of(region->number) < threshold / 2;
    if (left < FEWEST && !must)
        return;
    consider();
    file->stopped = threshold <= LEAST;
    set_threshold(threshold <= LEAST ? 0 : threshold / 2);
}

/* Returns the CPU time of the process in ticks of the clock, or 0 if it is not known. */
static uint64_t process_ticks(void)
{
    const struct profile_head *head = session.head;
    if (direct_forbidden || head == NULL)
        return 0;
    uint64_t ns = direct_read_ns(CLOCK_MONOTONIC) - head->ns_begin,
             ticks = ticks_now() - head->ticks_begin;
    double rate = ns != 0 ? (double)ticks / (double)ns : 1;
    return (uint64_t)((double)direct_read_ns(CLOCK_PROCESS_CPUTIME_ID) * rate);
}

/* Calls fall(). Like consider_there(), it runs on a stack of the probe's own (own_stack_call()),
 * because the program's stack may be small. A `must` of NULL means false. */
static void fall_there(void *must)
{
    fall(must != NULL);
}

/* The most regions that are tracked at once, unless all are. */
enum { REGIONS = LAYOUT_PAGES / LAYOUT_REGION_PAGES };

/* Called before a block is added that touches this many regions, tracked or not. Lets the threshold
 * fall until at most REGIONS of them are tracked. Each takes 17 KiB of memory. */
static void fall_before(uint64_t touched)
{
    while (layout_way == LAYOUT_SAMPLED && threshold > LEAST && touched * threshold >> 32 > REGIONS)
        own_stack_call(fall_there, &threshold);
}

static void consider_there(void *unused)
{
    (void)unused;
    consider();
}

/* Called for each allocation and free in a tracked region. Tracking may take one part in `one_in`
 * of the process's CPU time, and GRACE ticks more. An event is assumed to take FRESH_TICKS or
 * EVENT_TICKS, mostly by cache misses. The time of snapshots and of falls is measured. */
static void spend(bool fresh)
{
    enum { GRACE = 1500000, EVERY = 128, FRESH_TICKS = 400, EVENT_TICKS = 1000 };
    enum { BLOCKS = 8192 };
    static uint64_t last;
    file->events++;
    if (layout_way == LAYOUT_EXACT || threshold == 0)
        return;
    spent_ticks += fresh ? FRESH_TICKS : EVENT_TICKS;
    if (tracked_regions >= REGIONS || (tracked_blocks > BLOCKS && tracked_regions > 16))
        own_stack_call(fall_there, NULL);
    if (file->events % EVERY != 0)
        return;
    uint64_t now = process_ticks(), gained = now > last ? (now - last) / one_in : 0;
    last = now;
    spent_ticks -= gained < spent_ticks ? gained : spent_ticks;
    if (spent_ticks <= GRACE)
        return;
    own_stack_call(fall_there, &last);
    spent_ticks = GRACE / 4 * 3;
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* Returns the number of operations of the thread so far. */
static uint32_t operations_of(const struct thread_state *me)
{
    uint64_t sum = 0;
    const uint64_t *calls = &me->counts->calls[0][0][0];
    const uint64_t *released = &me->counts->released[0][0];
    for (size_t i = 0; i < sizeof me->counts->calls / sizeof *calls; i++)
        sum += calls[i];
    for (size_t i = 0; i < sizeof me->counts->released / sizeof *released; i++)
        sum += released[i];
    return (uint32_t)sum;
}

static void note_warmth(const struct thread_state *me, const struct freed_block *freed)
{
    uint64_t place = file->warm_seen++;
    if (place >= LAYOUT_WARMTH)
        place = place <= UINT32_MAX ? random_below(&lots, place + 1) : LAYOUT_WARMTH;
    if (place >= LAYOUT_WARMTH)
        return;
    bool other = freed->thread != me->number;
    file->warmth[place] = (struct layout_warmth){
        .operations = other ? 0 : operations_of(me) - freed->operations,
        .other = other,
        .used = 1,
    };
}

void layout_freed(const struct thread_state *me, const void *block)
{
    uint64_t blocked = futex_lock_enter(&lock);
    if (freed_sample_has_room((uintptr_t)block))
        freed_sample_add((struct freed_block){(uintptr_t)block, operations_of(me), me->number});
    futex_lock_leave(&lock, blocked);
}

/* If the new block has the address of a block in freed_sample.h, notes this reuse (struct
 * layout_warmth). */
static void meet_freed(const struct thread_state *me, uintptr_t block)
{
    struct freed_block *freed = freed_sample_find(block);
    if (LIKELY(freed == NULL))
        return;
    note_warmth(me, freed);
    freed->block = 0;
}

/* Ends the life of the block that begins at a granule. */
static void end_cell(struct region *region, size_t granule)
{
    struct cell *cell = &region->cells[granule];
    region->live[granule / 64] &= ~(UINT64_C(1) << granule % 64);
    tracked_blocks--;
    tracked_bytes -= tracked_bytes < cell->value ? tracked_bytes : cell->value;
}

/* Adds a block to the region in which it begins. Returns true if no block began there before. */
static bool begin_cell(struct thread_state *me, struct region *region, size_t granule, size_t bytes)
{
    struct cell *cell = &region->cells[granule];
    bool fresh = cell->state == NEVER;
    if (cell->state == LIVE) /* the free of the earlier block was not seen */
        end_cell(region, granule);
    *cell = (struct cell){
        .value = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX,
        .thread = (uint16_t)me->number,
        .state = LIVE,
        .remote = cell->state == FREED && cell->remote,
    };
    region->live[granule / 64] |= UINT64_C(1) << granule % 64;
    region->begun[granule / 64] |= UINT64_C(1) << granule % 64;
    tracked_blocks++;
    tracked_bytes += bytes;
    return fresh;
}

static struct region *tracked_or_new(uintptr_t number)
{
    struct region *region = region_at(number);
    if (region == NULL && hash_of(number) < threshold)
        region = track(number);
    return region;
}

/* Completes the sample of the thread's last allocation: the next block, `block`, follows it. */
static void note_distance(struct thread_state *me, const void *block, size_t bytes)
{
    struct layout_block *entry = me->layout_entry;
    bool resized = profile_kind(me->function) == PROFILE_KIND_REALLOC;
    if (resized && me->given == block && (uintptr_t)block == me->layout_block)
        return; /* realloc() resized the same block in place */
    me->layout_entry = NULL;
    if (entry->address != (uint32_t)me->layout_block || entry->next_bytes != 0)
        return; /* by now the entry belongs to another sample */
    entry->distance = (int64_t)((uintptr_t)block - me->layout_block);
    entry->next_bytes = bytes < UINT32_MAX ? (uint32_t)(bytes != 0 ? bytes : 1) : UINT32_MAX;
}

/* Hides again those granules of a block that lie in tracked regions or in the margins before them,
 * because handed_out_add() has noted them. */
static void hide_block(uintptr_t start, uintptr_t last)
{
    for (uintptr_t number = start >> LAYOUT_REGION_SHIFT;
         number <= (last + LAYOUT_MARGIN) >> LAYOUT_REGION_SHIFT; number++) {
        uintptr_t from = (number << LAYOUT_REGION_SHIFT) - LAYOUT_MARGIN;
        uintptr_t to = (number + 1) << LAYOUT_REGION_SHIFT;
        from = start > from ? start : from;
        to = last < to ? last + 1 : to;
        if (region_at(number) != NULL && from < to)
            (void)handed_out_hide(from, to - from);
    }
}

void layout_add(struct thread_state *me, const void *block, size_t bytes)
{
    uintptr_t start = (uintptr_t)block, last = start + (bytes != 0 ? bytes : 1) - 1;
    uintptr_t first = start >> LAYOUT_REGION_SHIFT;
    bool touches = false, fresh = true;
    uint64_t blocked = futex_lock_enter(&lock);
    if ((me->special & THREAD_PAIR) != 0 && me->layout_entry != NULL)
        note_distance(me, block, bytes);
    meet_freed(me, start);
    fall_before((last >> LAYOUT_REGION_SHIFT) - first + 1);
    for (uintptr_t number = first; number <= last >> LAYOUT_REGION_SHIFT && threshold != 0;
         number++) {
        struct region *region = tracked_or_new(number);
        if (region == NULL)
            continue;
        touches = true;
        if (number == first) {
            size_t granule = (start >> HANDED_OUT_GRANULE_SHIFT) % REGION_GRANULES;
            fresh = begin_cell(me, region, granule, bytes);
            continue;
        }
        drop_head(region);
        region->head = start;
        region->head_bytes = bytes;
        region->head_thread = (uint16_t)me->number;
        atomic_fetch_add_explicit(head_count(start), 1, memory_order_relaxed);
    }
    if (touches) {
        if (layout_way == LAYOUT_SAMPLED)
            watched_mark(block);
        spend(fresh);
        if (tracked_bytes > next_snapshot)
            own_stack_call(consider_there, NULL);
    }
    hide_block(start, last);
    futex_lock_leave(&lock, blocked);
}

void layout_remove(struct thread_state *me, const void *block)
{
    uintptr_t start = (uintptr_t)block;
    struct region *region = region_at(start >> LAYOUT_REGION_SHIFT);
    bool is_head = atomic_load_explicit(head_count(start), memory_order_relaxed) != 0;
    if (LIKELY(region == NULL && !is_head))
        return;
    uint64_t blocked = futex_lock_enter(&lock);
    region = region_at(start >> LAYOUT_REGION_SHIFT);
    size_t granule = (start >> HANDED_OUT_GRANULE_SHIFT) % REGION_GRANULES;
    struct cell *cell = region != NULL ? &region->cells[granule] : NULL;
    if (cell != NULL && cell->state == LIVE) {
        me->layout_lost = 1 + (uint64_t)cell->value;
        me->layout_lost_block = start;
        end_cell(region, granule);
        *cell = (struct cell){
            .thread = (uint16_t)me->number,
            .state = FREED,
            .remote = cell->thread != (uint16_t)me->number,
        };
        spend(false);
    }
    for (struct region *one = is_head ? tracked : NULL; one != NULL; one = one->next)
        if (one->head == start) {
            me->layout_lost = 1 + one->head_bytes;
            me->layout_lost_block = start;
            drop_head(one);
        }
    futex_lock_leave(&lock, blocked);
}

void layout_restore(struct thread_state *me, const void *block)
{
    me->layout_entry = NULL; /* the realloc failed: there is no next block */
    if (me->layout_lost != 0 && me->layout_lost_block == (uintptr_t)block)
        layout_add(me, block, me->layout_lost - 1);
    me->layout_lost = 0;
}

void layout_sample(struct thread_state *me, const void *block, size_t bytes, size_t usable)
{
    enum profile_group group = profile_group(bytes);
    uint64_t blocked = futex_lock_enter(&lock);
    uint64_t place = file->seen[group]++;
    if (place >= LAYOUT_BLOCKS)
        place = place <= UINT32_MAX ? random_below(&lots, place + 1) : LAYOUT_BLOCKS;
    if (place < LAYOUT_BLOCKS) {
        struct layout_block *entry = &file->blocks[group][place];
        *entry = (struct layout_block){
            .address = (uint32_t)(uintptr_t)block,
            .bytes = bytes < UINT32_MAX ? (uint32_t)(bytes != 0 ? bytes : 1) : UINT32_MAX,
            .usable = usable < UINT32_MAX ? (uint32_t)usable : 0,
        };
        me->layout_entry = entry;
        me->layout_block = (uintptr_t)block;
    }
    futex_lock_leave(&lock, blocked);
}

/* --- watched lines ---------------------------------------------------------------------------- */

/* Draws a line with live blocks of several threads. Returns false if there is none. */
static bool find_shared_line(struct watched_line *found)
{
    struct line_search search = {.drawn = found};
    for (const struct region *region = tracked; region != NULL; region = region->next) {
        if (region->head != 0)
            line_search_block(&search, region->head, region->head_bytes, region->head_thread);
        for (size_t word = 0; word < REGION_WORDS; word++)
            for (uint64_t bits = region->live[word]; bits != 0; bits &= bits - 1) {
                size_t granule = word * 64 + (size_t)__builtin_ctzll(bits);
                const struct cell *cell = &region->cells[granule];
                line_search_block(&search,
                                  (region->number << LAYOUT_REGION_SHIFT) +
                                      (granule << HANDED_OUT_GRANULE_SHIFT),
                                  cell->value, cell->thread);
            }
        line_search_end(&search);
    }
    return search.seen != 0;
}

void layout_watch_in_handler(void)
{
    if (!futex_lock_take_soon(&lock))
        return;
    if (layout_watch_due())
        line_watch_step(find_shared_line);
    futex_lock_drop(&lock);
}

static void step(void *unused)
{
    (void)unused;
    layout_watch_in_handler();
}

void layout_watch(void)
{
    own_stack_call(step, NULL);
}

/* --- the process ------------------------------------------------------------------------------ */

static struct layout_file *create(void)
{
    enum { FLAGS = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_EXCL };
    static char path[4096];
    if (direct_forbidden || !session_path(path, sizeof path, ".layout"))
        return NULL;
    long fd = direct_call(SYS_openat, AT_FDCWD, (long)path, FLAGS, 0600, 0, 0);
    if (direct_failed(fd))
        return NULL;
    long made = session_reserve((int)fd, 0, sizeof *file);
    if (made == 0)
        made = direct_call(SYS_mmap, 0, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    direct_call3(SYS_close, fd, 0, 0);
    if (direct_failed(made)) {
        direct_call3(SYS_unlinkat, AT_FDCWD, (long)path, 0);
        return NULL;
    }
    own_memory_add((const void *)made, sizeof *file);
    return (struct layout_file *)made;
}

void layout_begin(void)
{
    static bool chosen;
    if (chosen)
        return;
    chosen = true;
    bool thorough = session_option_is("CAIRN_PROBE_LAYOUT", "thorough");
    bool sampled = thorough || session_option_is("CAIRN_PROBE_LAYOUT", "sampled");
    uint8_t way = session_option_is("CAIRN_PROBE_LAYOUT", "exact") ? LAYOUT_EXACT
                  : sampled                                        ? LAYOUT_SAMPLED
                                                                   : LAYOUT_OFF;
    if (way == LAYOUT_OFF) {
        own_memory_leave_out(directories, sizeof directories);
        return;
    }
    file = create();
    if (file == NULL)
        return;
    seed = direct_read_ns(CLOCK_MONOTONIC) ^ session.head->process;
    lots = random_of(seed);
    one_in = thorough ? THOROUGH_ONE_IN : SAMPLED_ONE_IN;
    threshold = file->threshold = UINT64_C(1) << 32;
    file->order = PROFILE_ORDER;
    file->version = LAYOUT_VERSION;
    file->bytes = sizeof *file;
    file->way = way;
    file->process = session.head->process;
    file->ns_begin = session.head->ns_begin;
    file->gap = way == LAYOUT_EXACT ? 1 : session.gap;
    if (way == LAYOUT_EXACT)
        watched_look_at_all();
    memcpy(file->magic, LAYOUT_MAGIC, sizeof file->magic);
    line_watch_begin(&file->watches, seed);
    residence_count_huge();
    layout_way = way;
}

/* Considers a snapshot if live bytes have grown by one part in PART_OF_BYTES, or if one part in
 * PART_OF_LIFE of the process's life has passed since the last snapshot. So there are few. */
void layout_moment(void)
{
    enum { PART_OF_LIFE = 8, PART_OF_BYTES = 16 };
    if (layout_way == LAYOUT_OFF)
        return;
    uint64_t kept = file->snapshot_bytes;
    uint64_t lived_ns = direct_now_ns() - file->ns_begin;
    if ((lived_ns - file->snapshot_ns) * PART_OF_LIFE < lived_ns &&
        live_now().bytes <= kept + kept / PART_OF_BYTES)
        return;
    futex_lock_take(&lock);
    consider();
    futex_lock_drop(&lock);
}

void layout_end(void)
{
    if (layout_way == LAYOUT_OFF || !futex_lock_take_soon(&lock))
        return;
    consider();
    line_watch_end();
    futex_lock_drop(&lock);
}

void layout_forked(void)
{
    if (layout_way == LAYOUT_OFF)
        return;
    layout_way = LAYOUT_OFF;
    line_watch_end();
    bool broken = futex_lock_reset(&lock);
    for (struct region *one = broken ? NULL : tracked; one != NULL; one = one->next)
        handed_out_show((one->number << LAYOUT_REGION_SHIFT) - LAYOUT_MARGIN,
                        LAYOUT_MARGIN + LAYOUT_REGION_BYTES);
    if (!direct_forbidden)
        direct_call(SYS_mmap, (long)file, sizeof *file, PROT_READ | PROT_WRITE,
                    MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
