#include "probe/call_stacks.h"

#include "base/clock.h"
#include "base/ticks.h"
#include "probe/direct_syscall.h"
#include "probe/futex_lock.h"
#include "probe/live.h"
#include "probe/objects.h"
#include "probe/own_memory.h"
#include "probe/own_stack.h"
#include "probe/pinned.h"
#include "probe/poisson.h"
#include "probe/session.h"
#include "probe/unwind.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    EVERY_FIRST = 16 << 10, /* mean number of bytes between two samples */
    /* The mean distance of samples is doubled after this many samples. It is also doubled after
     * WINDOW samples that took more than a PART_OF_TIME-th of the CPU time. */
    SAMPLES_OF_EVERY = 8192,
    WINDOW = 128,
    PART_OF_TIME = 32,
    BLOCKS_SHIFT = 15, /* log2 of the sampled blocks that can live at once */
    BLOCKS_SHIFT_EXACT = 24,
    NODES_SHIFT = 20,
    INDEX_SHIFT_FIRST = 10,
    IMAGE_BYTES = CALL_STACKS_HEAD_BYTES + CALL_STACKS_CHUNKS * CALL_STACKS_CHUNK_BYTES,
};

uint8_t call_stacks_way;

static struct call_stacks_head *head; /* NULL: there is no file */
static unsigned char *image;          /* reserved addresses for the whole file */
static char path[4096];
static bool every_is_fixed;
static bool knows_all_blocks; /* false in a child of fork, which inherits blocks */

/* Protects everything below and the file. */
static struct futex_lock lock;
static struct random generator;
static uint64_t samples_of_every;
static struct {
    uint64_t samples;
    uint64_t spent_ticks; /* time that all threads spent on these samples */
    uint64_t begin_ticks; /* when the window began, on three clocks */
    uint64_t begin_ns;
    uint64_t begin_cpu_ns;
} window;
static uint64_t seed; /* CAIRN_PROBE_STACKS_SEED; 0: the clock gives the seed */

/* --- the file --------------------------------------------------------------------------------- */

static const size_t entry_bytes[CALL_STACKS_TABLES] = {
    [CALL_STACKS_NODES] = sizeof(struct call_stacks_node),
    [CALL_STACKS_SITES] = sizeof(struct call_stacks_site),
    [CALL_STACKS_OBJECTS] = sizeof(struct call_stacks_object),
};

static unsigned char *chunks[CALL_STACKS_TABLES][CALL_STACKS_CHUNKS];
static uint32_t chunk_counts[CALL_STACKS_TABLES];

static void *entry(enum call_stacks_table table, uint32_t number)
{
    size_t of_chunk = CALL_STACKS_CHUNK_BYTES / entry_bytes[table];
    return chunks[table][number / of_chunk] + number % of_chunk * entry_bytes[table];
}

static struct call_stacks_node *node_at(uint32_t number)
{
    return entry(CALL_STACKS_NODES, number);
}

static struct call_stacks_site *site_at(uint32_t number)
{
    return entry(CALL_STACKS_SITES, number);
}

/* Maps a piece of the file at its place in the image, with disk blocks reserved. */
static bool map_piece(long fd, uint64_t from, uint64_t bytes)
{
    return session_reserve((int)fd, from, from + bytes) == 0 &&
           !direct_failed(direct_call(SYS_mmap, (long)(image + from), (long)bytes,
                                      PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                                      (long)from));
}

static long open_file(int flags)
{
    return direct_forbidden ? -1
                            : direct_call(SYS_openat, AT_FDCWD, (long)path,
                                          O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600, 0, 0);
}

/* Adds a chunk to a table. Returns false if there is no room for it. */
static bool grow(enum call_stacks_table table)
{
    uint32_t number = head->chunk_count;
    uint64_t from = CALL_STACKS_HEAD_BYTES + (uint64_t)number * CALL_STACKS_CHUNK_BYTES;
    long fd = number < CALL_STACKS_CHUNKS ? open_file(0) : -1;
    if (direct_failed(fd))
        return false;
    bool mapped = map_piece(fd, from, CALL_STACKS_CHUNK_BYTES);
    direct_call3(SYS_close, fd, 0, 0);
    if (!mapped)
        return false;
    chunks[table][chunk_counts[table]++] = image + from;
    head->chunk_table[number] = (uint8_t)table;
    head->chunk_count++;
    return true;
}

/* Returns the number of a new entry, filled with zeroes. Returns 0 if there is no room. Entry 0 of
 * nodes and sites was made before. */
static uint32_t new_entry(enum call_stacks_table table, uint32_t *count)
{
    size_t of_chunk = CALL_STACKS_CHUNK_BYTES / entry_bytes[table];
    if (*count == chunk_counts[table] * of_chunk && !grow(table))
        return 0;
    return (*count)++;
}

/* --- stacks ----------------------------------------------------------------------------------- */

/* Node numbers by a hash of their content; 0: none. The table is filled to one half at most. */
static uint32_t *node_index;
static unsigned node_index_shift;
static uint32_t *site_of_node; /* 0: the node has no site yet */

static size_t hash_of(uint64_t a, uint64_t b, unsigned shift)
{
    uint64_t mixed = (a + b * UINT64_C(0xbf58476d1ce4e5b9)) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)((mixed ^ mixed >> 29) * UINT64_C(0x94d049bb133111eb) >> (64 - shift));
}

static uint32_t *node_slot(uint32_t parent, uint32_t object, uint64_t place)
{
    size_t slot = hash_of(place, (uint64_t)parent << 32 | object, node_index_shift);
    for (;; slot = (slot + 1) & (((size_t)1 << node_index_shift) - 1)) {
        const struct call_stacks_node *node = node_at(node_index[slot]);
        if (node_index[slot] == 0 ||
            (node->parent == parent && node->object == object && node->place == place))
            return &node_index[slot];
    }
}

static void widen_node_index(void)
{
    memset(node_index, 0, sizeof *node_index << node_index_shift);
    node_index_shift++;
    for (uint32_t i = 1; i < head->node_count; i++) {
        const struct call_stacks_node *node = node_at(i);
        *node_slot(node->parent, node->object, node->place) = i;
    }
}

/* Returns the node of a frame that `parent` called. Returns 0 if there is no room. */
static uint32_t child_of(uint32_t parent, uint32_t object, uint64_t place)
{
    uint32_t *slot = node_slot(parent, object, place);
    if (LIKELY(*slot != 0))
        return *slot;
    if (head->node_count >= UINT32_C(1) << NODES_SHIFT)
        return 0;
    uint32_t number = new_entry(CALL_STACKS_NODES, &head->node_count);
    if (number == 0)
        return 0;
    *node_at(number) = (struct call_stacks_node){parent, object, place};
    *slot = number;
    if (head->node_count > UINT32_C(1) << (node_index_shift - 1))
        widen_node_index();
    return number;
}

/* Copies the entries of objects that are new. */
static bool note_objects(void)
{
    while (head->object_count < objects_count()) {
        uint32_t number = head->object_count;
        size_t of_chunk = CALL_STACKS_CHUNK_BYTES / sizeof(struct call_stacks_object);
        if (number == chunk_counts[CALL_STACKS_OBJECTS] * of_chunk && !grow(CALL_STACKS_OBJECTS))
            return false;
        memcpy(entry(CALL_STACKS_OBJECTS, number), &objects_get(number + 1)->about,
               sizeof(struct call_stacks_object));
        head->object_count++;
    }
    return true;
}

/* Returns the site of a stack, without the frames of the probe. Returns 0 if there is no room. */
static uint32_t site_of(const struct unwind_stack *stack)
{
    size_t first = 0;
    uint32_t node = 0;
    while (first < stack->count && stack->frames[first].object == stack->frames[0].object)
        first++;
    if (first == stack->count)
        head->unread++;
    if (!note_objects())
        return 0;
    if (stack->deeper && (node = child_of(0, CALL_STACKS_DEEPER, 0)) == 0)
        return 0;
    for (size_t i = stack->count; i > first; i--) {
        const struct unwind_frame *frame = &stack->frames[i - 1];
        uint32_t object = frame->object != 0 ? CALL_STACKS_FIRST_OBJECT + frame->object - 1
                                             : CALL_STACKS_NO_OBJECT;
        if ((node = child_of(node, object, frame->place)) == 0)
            return 0;
    }
    if (site_of_node[node] == 0) {
        uint32_t site = new_entry(CALL_STACKS_SITES, &head->site_count);
        if (site == 0)
            return 0;
        site_at(site)->node = node;
        site_of_node[node] = site;
    }
    return site_of_node[node];
}

/* --- live blocks ------------------------------------------------------------------------------ */

struct block {
    uintptr_t start;      /* address of the block; 0: the entry is not used */
    uint64_t ticks;       /* when the block was handed out */
    uint64_t bytes;       /* requested bytes */
    double chance;        /* probability that such a block is sampled */
    uint32_t thread;      /* number of the thread that allocated the block */
    uint32_t allocations; /* allocations of `thread` up to this one */
    uint32_t site;        /* in an unused entry: number of the next unused one */
    bool filtered;        /* the block is counted in watched_filter */
};

static struct block *blocks; /* [0] is not used */
static uint32_t blocks_most;
static uint32_t blocks_end = 1; /* entries from here on were never used */
static uint32_t unused_block;   /* an unused entry; 0: none before blocks_end */
static uint32_t block_count;
/* Numbers of blocks by a hash of their address; 0: none. At most half of it is filled. */
static uint32_t *block_index;
static unsigned block_index_shift;

static size_t block_slot(uintptr_t start)
{
    size_t slot = hash_of(start, 0, block_index_shift);
    while (block_index[slot] != 0 && blocks[block_index[slot]].start != start)
        slot = (slot + 1) & (((size_t)1 << block_index_shift) - 1);
    return slot;
}

static void widen_block_index(void)
{
    memset(block_index, 0, sizeof *block_index << block_index_shift);
    block_index_shift++;
    for (uint32_t i = 1; i < blocks_end; i++)
        if (blocks[i].start != 0)
            block_index[block_slot(blocks[i].start)] = i;
}

/* Returns a new entry, or NULL if the table is full. There must be no entry for `start` yet. */
static struct block *new_block(uintptr_t start)
{
    uint32_t number = unused_block;
    if (number != 0)
        unused_block = blocks[number].site;
    else if (blocks_end < blocks_most)
        number = blocks_end++;
    else
        return NULL;
    blocks[number] = (struct block){.start = start};
    block_index[block_slot(start)] = number;
    block_count++;
    if (block_count > UINT32_C(1) << (block_index_shift - 1))
        widen_block_index();
    return &blocks[number];
}

/* Removes the entry at a slot. Entries behind it move up, so that searches still find them (Knuth,
 * vol. 3, 6.4, algorithm R). */
static void drop_block(size_t slot)
{
    size_t mask = ((size_t)1 << block_index_shift) - 1;
    uint32_t number = block_index[slot];
    for (size_t next = (slot + 1) & mask; block_index[next] != 0; next = (next + 1) & mask) {
        size_t wanted = hash_of(blocks[block_index[next]].start, 0, block_index_shift);
        if (((next - wanted) & mask) >= ((next - slot) & mask)) {
            block_index[slot] = block_index[next];
            slot = next;
        }
    }
    block_index[slot] = 0;
    blocks[number] = (struct block){.start = 0, .site = unused_block};
    unused_block = number;
    block_count--;
}

/* --- sums ------------------------------------------------------------------------------------- */

/* Adds a block to a sum, or subtracts it if `sign` is -1. */
static void add_to(struct call_stacks_sum *sum, const struct block *block, double sign)
{
    double bytes = (double)block->bytes, weight = sign / block->chance;
    double variance = weight * (1 - block->chance) / block->chance;
    sum->blocks += weight;
    sum->bytes += weight * bytes;
    sum->blocks_variance += variance;
    sum->bytes_variance += variance * bytes * bytes;
}

/* Adds a block to the live ones of its site, or subtracts it if `sign` is -1. */
static void change_live(const struct block *block, int sign)
{
    struct call_stacks_site *site = site_at(block->site);
    if (site->changed <= head->peak_moment)
        site->peak = site->live;
    add_to(&site->live, block, sign);
    head->live_bytes += sign * (double)block->bytes / block->chance;
    site->live_samples += (uint32_t)sign;
    if (site->live_samples == 0) /* removes rounding errors */
        site->live = (struct call_stacks_sum){.blocks = 0};
    site->changed = ++head->moment;
}

/* Notes the peak if there are more live bytes than ever before. Uses the count of live.h if there
 * is one, because the estimate from the samples may be high at a moment by chance. */
static void look_for_peak(void)
{
    bool counted = live_way != LIVE_ESTIMATED && call_stacks_way == CALL_STACKS_SAMPLED;
    double seen = counted ? (double)live_counted() : head->live_bytes;
    if (head->is_counted != counted && head->peak_ticks != 0)
        head->peak_seen = head->peak_bytes;
    head->is_counted = counted;
    /* live.h counts in steps. Of all moments with the highest count, the latest is the peak. */
    if (head->peak_ticks != 0 && (seen < head->peak_seen || (seen == head->peak_seen && !counted)))
        return;
    head->peak_seen = seen;
    head->peak_bytes = head->live_bytes;
    head->peak_moment = head->moment;
    head->peak_ticks = ticks_now();
}

/* Counts the end of a block's life at its site, or undoes that if `sign` is -1. */
static void note_end(const struct block *block, const struct thread_state *me, uint32_t allocations,
                     int sign)
{
    struct call_stacks_site *site = site_at(block->site);
    double weight = sign / block->chance;
    uint64_t life = ticks_now() - block->ticks;
    unsigned octave = life != 0 ? 63 - (unsigned)__builtin_clzll(life) : 0;
    bool is_own = me != NULL && me->number == block->thread;
    site->freed += weight;
    site->lives[octave >> 2] += (float)weight;
    static_assert(CALL_STACKS_LIFE_SHIFT == 4 && CALL_STACKS_LIVES == 16, "four octaves each");
    if (!is_own)
        site->freed_elsewhere += weight;
    else if (allocations - block->allocations <= CALL_STACKS_TEMPORARY)
        add_to(&site->temporary, block, sign);
}

/* Returns the number of allocations of a thread so far. */
static uint32_t allocations_of(const struct thread_state *me)
{
    const uint64_t *calls = &me->counts->calls[0][0][0];
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof me->counts->calls / sizeof *calls; i++)
        sum += calls[i];
    return (uint32_t)sum;
}

static void forget_block(size_t slot)
{
    const struct block *block = &blocks[block_index[slot]];
    change_live(block, -1);
    if (block->filtered)
        watched_uncount((const void *)block->start);
    drop_block(slot);
}

/* Doubles the mean distance of samples until a quarter of the table is free. Drops blocks at random
 * so that those that stay are a sample with this distance. */
static void thin(void)
{
    while (block_count > blocks_most / 4 * 3) {
        head->every *= 2;
        for (uint32_t i = 1; i < blocks_end; i++) {
            struct block *block = &blocks[i];
            if (block->start == 0)
                continue;
            double length = (double)block->bytes + CALL_STACKS_BLOCK_BYTES;
            double chance = poisson_chance(length, (double)head->every);
            if (chance >= block->chance)
                continue;
            double lot = (double)(random_next(&generator) >> 11) * 0x1p-53;
            if (lot >= chance / block->chance) {
                forget_block(block_slot(block->start));
                continue;
            }
            change_live(block, -1);
            block->chance = chance;
            change_live(block, 1);
        }
    }
}

/* Adds a block to the live ones. */
static void begin_life(struct block block)
{
    size_t slot = block_slot(block.start);
    if (block_index[slot] != 0) /* the free of an earlier block was not seen */
        forget_block(slot);
    if (call_stacks_way == CALL_STACKS_SAMPLED && block_count >= blocks_most - 2)
        thin();
    struct block *kept = new_block(block.start);
    if (kept == NULL) {
        head->unwatched++;
        return;
    }
    block.filtered =
        call_stacks_way == CALL_STACKS_SAMPLED && watched_count((const void *)block.start);
    *kept = block;
    change_live(kept, 1);
    look_for_peak();
}

/* --- operations ------------------------------------------------------------------------------- */

void call_stacks_choose(struct thread_state *me)
{
    switch (call_stacks_way) {
    case CALL_STACKS_OFF:
        me->until_stack = INT64_MAX;
        return;
    case CALL_STACKS_EXACT:
        me->until_stack = 0;
        break;
    default:
        me->stack_every = me->next_stack_every;
        me->next_stack_every = head->every;
        me->until_stack = (int64_t)poisson_gap(&me->random, (double)head->every);
    }
    me->special |= THREAD_STACK;
}

void call_stacks_thread_begin(struct thread_state *me)
{
    me->until_stack = INT64_MAX;
    me->stack_lost.start = 0;
    if (call_stacks_way == CALL_STACKS_OFF)
        return;
    if (seed != 0) /* for tests */
        me->random = random_of(seed + ((uint64_t)me->number << 48));
    me->next_stack_every = head->every;
    call_stacks_choose(me);
    me->special &= (uint8_t)~THREAD_STACK;
}

/* Begins a window. Returns true if the samples of the previous window took too much of the CPU
 * time. Wall time is not used, because a process does not run all the time on a busy machine. */
static bool begin_window(void)
{
    struct timespec cpu = {.tv_sec = 0};
    direct_call3(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, (long)&cpu, 0);
    uint64_t cpu_ns = (uint64_t)cpu.tv_sec * NS_PER_S + (uint64_t)cpu.tv_nsec;
    uint64_t ticks = ticks_now(), ns = direct_now_ns();
    double spent_ns = (double)window.spent_ticks * (double)(ns - window.begin_ns) /
                      (double)(ticks - window.begin_ticks + 1);
    bool was_expensive = spent_ns * PART_OF_TIME > (double)(cpu_ns - window.begin_cpu_ns);
    window.samples = window.spent_ticks = 0;
    window.begin_ticks = ticks;
    window.begin_ns = ns;
    window.begin_cpu_ns = cpu_ns;
    return was_expensive;
}

/* Doubles the mean distance of samples, if there were too many or if they take too long. */
static void adapt_every(uint64_t spent_ticks)
{
    window.spent_ticks += spent_ticks;
    bool is_slow = ++window.samples >= WINDOW && begin_window();
    if (++samples_of_every < SAMPLES_OF_EVERY && !is_slow)
        return;
    samples_of_every = 0;
    head->every *= 2;
}

static void add(const struct thread_state *me, const struct unwind_stack *stack)
{
    double length = (double)me->stack_bytes + CALL_STACKS_BLOCK_BYTES;
    struct block block = {
        .start = me->stack_block,
        .ticks = ticks_now(),
        .bytes = me->stack_bytes,
        .chance = call_stacks_way == CALL_STACKS_EXACT
                      ? 1
                      : poisson_chance(length, (double)me->stack_every),
        .thread = me->number,
        .allocations = allocations_of(me),
        .site = site_of(stack),
    };
    if (block.site == 0)
        head->without_room++;
    head->samples++;
    struct call_stacks_site *site = site_at(block.site);
    site->samples++;
    add_to(&site->allocated, &block, 1);
    begin_life(block);
    if (call_stacks_way == CALL_STACKS_SAMPLED && !every_is_fixed)
        adapt_every(ticks_now() - me->stack_ticks);
}

static void add_on_own_stack(void *given)
{
    const struct thread_state *me = given;
    struct unwind_stack stack;
    unwind(&me->stack_start, &stack);
    futex_lock_take(&lock);
    if (call_stacks_way != CALL_STACKS_OFF)
        add(me, &stack);
    futex_lock_drop(&lock);
}

__attribute__((noinline)) void call_stacks_add(struct thread_state *me, const void *block,
                                               size_t bytes)
{
    if (call_stacks_way == CALL_STACKS_OFF || direct_forbidden)
        return;
    /* The thread's record holds this data, because the program's stack may be small. */
    me->stack_block = (uintptr_t)block;
    me->stack_bytes = bytes;
    me->stack_ticks = ticks_now();
    unwind_here(&me->stack_start);
    own_stack_call(add_on_own_stack, me);
}

void call_stacks_remove(struct thread_state *me, const void *block)
{
    me->stack_lost.start = 0;
    futex_lock_take(&lock);
    size_t slot = block_slot((uintptr_t)block);
    if (block_index[slot] != 0) {
        const struct block *found = &blocks[block_index[slot]];
        uint32_t allocations = allocations_of(me);
        note_end(found, me, allocations, 1);
        me->stack_lost = (struct call_stacks_lost){
            .start = found->start,
            .ticks = found->ticks,
            .bytes = found->bytes,
            .chance = found->chance,
            .thread = found->thread,
            .allocations = found->allocations,
            .site = found->site,
        };
        forget_block(slot);
    }
    futex_lock_drop(&lock);
}

static void restore_of_thread(void *given)
{
    struct thread_state *me = given;
    const struct call_stacks_lost *lost = &me->stack_lost;
    struct block again = {
        .start = lost->start,
        .ticks = lost->ticks,
        .bytes = lost->bytes,
        .chance = lost->chance,
        .thread = lost->thread,
        .allocations = lost->allocations,
        .site = lost->site,
    };
    futex_lock_take(&lock);
    if (call_stacks_way != CALL_STACKS_OFF) {
        note_end(&again, me, allocations_of(me), -1);
        begin_life(again);
    }
    futex_lock_drop(&lock);
}

void call_stacks_restore(struct thread_state *me, const void *block)
{
    if (me->stack_lost.start == 0 || me->stack_lost.start != (uintptr_t)block)
        return;
    own_stack_call(restore_of_thread, me);
    me->stack_lost.start = 0;
}

static void remove_on_own_stack(void *block)
{
    if (!futex_lock_take_soon(&lock))
        return;
    size_t slot = block_slot((uintptr_t)block);
    if (call_stacks_way != CALL_STACKS_OFF && block_index[slot] != 0) {
        note_end(&blocks[block_index[slot]], NULL, 0, 1);
        forget_block(slot);
    }
    futex_lock_drop(&lock);
}

void call_stacks_remove_late(const void *block)
{
    if (call_stacks_way == CALL_STACKS_OFF || !watched_maybe(block))
        return;
    own_stack_call(remove_on_own_stack, (void *)(uintptr_t)block);
}

/* --- sparse spans ----------------------------------------------------------------------------- */

/* Adds to each site its blocks in sparse spans. Returns false if the sparse spans are not known. */
static bool find_sparse(enum call_stacks_span kind, enum pinned_span shift)
{
    if (!pinned_begin(shift, block_count))
        return false;
    for (uint32_t i = 1; i < blocks_end; i++)
        if (blocks[i].start != 0)
            pinned_add(blocks[i].start, blocks[i].bytes);
    struct pinned_totals totals = pinned_judge();
    head->pinned_spans[kind] = totals.sparse, head->pinned_held[kind] = totals.held;
    for (uint32_t i = 0; i < head->site_count; i++)
        site_at(i)->pinned[kind] = (struct call_stacks_pinned){.blocks = 0};
    for (uint32_t i = 1; i < blocks_end && totals.is_known; i++) {
        double part = blocks[i].start != 0 ? pinned_part(blocks[i].start, blocks[i].bytes) : 0;
        if (part == 0)
            continue;
        struct call_stacks_pinned *pinned = &site_at(blocks[i].site)->pinned[kind];
        pinned->blocks++;
        pinned->bytes += (double)blocks[i].bytes;
        pinned->held += part;
    }
    return totals.is_known;
}

static void find_all_sparse(void *unused)
{
    (void)unused;
    if (!futex_lock_take_soon(&lock))
        return;
    if (head != NULL && head->unwatched == 0)
        head->pinned_known = find_sparse(CALL_STACKS_PAGES, PINNED_PAGES) &&
                             find_sparse(CALL_STACKS_BIG_CHUNKS, PINNED_CHUNKS);
    futex_lock_drop(&lock);
}

void call_stacks_end(void)
{
    if (call_stacks_way == CALL_STACKS_EXACT && knows_all_blocks && !direct_forbidden)
        own_stack_call(find_all_sparse, NULL);
}

/* --- the process ------------------------------------------------------------------------------ */

/* Maps the tables that are not in the file. Returns false if there is no memory. */
static bool map_tables(uint8_t way)
{
    unsigned shift = way == CALL_STACKS_EXACT ? BLOCKS_SHIFT_EXACT : BLOCKS_SHIFT;
    node_index = own_memory_map_sparse(sizeof *node_index << (NODES_SHIFT + 1));
    site_of_node = own_memory_map_sparse(sizeof *site_of_node << NODES_SHIFT);
    for (; shift >= BLOCKS_SHIFT && blocks == NULL; shift--) {
        block_index = own_memory_map_sparse(sizeof *block_index << (shift + 1));
        blocks = block_index != NULL ? own_memory_map_sparse(sizeof *blocks << shift) : NULL;
        blocks_most = UINT32_C(1) << shift;
    }
    image = (unsigned char *)direct_call(SYS_mmap, 0, IMAGE_BYTES, PROT_NONE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (direct_failed((long)image))
        image = NULL;
    else
        own_memory_add(image, IMAGE_BYTES);
    return node_index != NULL && site_of_node != NULL && blocks != NULL && image != NULL;
}

/* Empties the tables in the child of a fork. */
static void clear_tables(void)
{
    for (uint32_t i = 1; i < blocks_end; i++)
        if (blocks[i].start != 0 && blocks[i].filtered)
            watched_uncount((const void *)blocks[i].start);
    memset(blocks, 0, blocks_end * sizeof *blocks);
    memset(block_index, 0, sizeof *block_index << block_index_shift);
    memset(node_index, 0, sizeof *node_index << node_index_shift);
    direct_call3(SYS_madvise, (long)site_of_node, sizeof *site_of_node << NODES_SHIFT,
                 MADV_DONTNEED);
    direct_call(SYS_mmap, (long)image, IMAGE_BYTES, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    memset(chunk_counts, 0, sizeof chunk_counts);
    blocks_end = 1;
    unused_block = block_count = 0;
}

/* Creates the file with one chunk for each table. */
static bool create(void)
{
    if (!session_path(path, sizeof path, ".stacks"))
        return false;
    long fd = open_file(O_CREAT | O_EXCL);
    if (direct_failed(fd))
        return false;
    bool made = map_piece(fd, 0, CALL_STACKS_HEAD_BYTES);
    direct_call3(SYS_close, fd, 0, 0);
    head = made ? (struct call_stacks_head *)image : NULL;
    for (int table = 0; made && table < CALL_STACKS_TABLES; table++)
        made = grow((enum call_stacks_table)table);
    if (!made) {
        head = NULL;
        direct_call3(SYS_unlinkat, AT_FDCWD, (long)path, 0);
        return false;
    }
    (void)new_entry(CALL_STACKS_NODES, &head->node_count);
    (void)new_entry(CALL_STACKS_SITES, &head->site_count);
    return true;
}

static uint64_t number_of(const char *option)
{
    const char *given = session_option(option);
    return given != NULL ? strtoull(given, NULL, 10) : 0;
}

/* Returns the reason why stacks cannot be recorded here. */
static enum call_stacks_problem problem_here(void)
{
    static struct peek peek;
    uintptr_t word;
    if (!UNWIND_WORKS)
        return CALL_STACKS_NO_RULES;
    peek.bytes = 0;
    return peek_word(&peek, (uintptr_t)&head, &word) ? CALL_STACKS_WORK : CALL_STACKS_NO_READING;
}

/* The choices that a forked child shares with its parent. */
static uint8_t chosen_way;
static uint64_t every_first;

/* Chooses how to record, and prepares it. Returns false if stacks are not wanted. */
static bool choose(void)
{
    static bool chosen;
    if (chosen)
        return chosen_way != CALL_STACKS_OFF;
    chosen = true;
    uint8_t way = session_option_is("CAIRN_PROBE_STACKS", "exact")     ? CALL_STACKS_EXACT
                  : session_option_is("CAIRN_PROBE_STACKS", "sampled") ? CALL_STACKS_SAMPLED
                                                                       : CALL_STACKS_OFF;
    if (way == CALL_STACKS_OFF || !map_tables(way))
        return false;
    objects_begin();
    seed = number_of("CAIRN_PROBE_STACKS_SEED");
    every_first = number_of("CAIRN_PROBE_STACKS_EVERY");
    every_is_fixed = every_first != 0;
    if (way == CALL_STACKS_EXACT)
        every_first = 1;
    else if (every_first == 0)
        every_first = EVERY_FIRST;
    chosen_way = way;
    return true;
}

void call_stacks_begin(void)
{
    bool again = chosen_way != CALL_STACKS_OFF;
    if (!choose() || direct_forbidden)
        return;
    if (again)
        clear_tables();
    knows_all_blocks = !again;
    node_index_shift = block_index_shift = INDEX_SHIFT_FIRST;
    samples_of_every = 0;
    (void)begin_window();
    if (!create())
        return;
    generator = random_of(seed != 0 ? seed : clock_now_ns() ^ session.head->process);
    head->order = PROFILE_ORDER;
    head->version = CALL_STACKS_VERSION;
    head->head_bytes = sizeof *head;
    head->node_bytes = sizeof(struct call_stacks_node);
    head->site_bytes = sizeof(struct call_stacks_site);
    head->object_bytes = sizeof(struct call_stacks_object);
    head->way = chosen_way;
    head->process = session.head->process;
    head->ns_begin = session.head->ns_begin;
    head->every_first = head->every = every_first;
    head->problem = problem_here();
    if (chosen_way == CALL_STACKS_EXACT && !watched_maybe(NULL))
        watched_look_at_all();
    memcpy(head->magic, CALL_STACKS_MAGIC, sizeof head->magic);
    if (head->problem == CALL_STACKS_WORK)
        call_stacks_way = chosen_way;
}

void call_stacks_forked(void)
{
    call_stacks_way = CALL_STACKS_OFF;
    head = NULL;
    thread_state.stack_lost.start = 0; /* stack_lost.site is in the parent's file */
    (void)futex_lock_reset(&lock);
    objects_forked();
}
