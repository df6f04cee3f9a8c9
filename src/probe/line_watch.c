#include "probe/line_watch.h"

#include "base/clock.h"
#include "base/ticks.h"
#include "probe/direct_syscall.h"
#include "probe/futex_lock.h"
#include "probe/session.h"

#include <errno.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>

enum {
    THREADS_MOST = 16,
    BREAKPOINTS = 4,
    WORDS = 8, /* words of 8 bytes in a line */
    HITS_MOST = 100,
    WINDOW_NS = 4 * 1000 * 1000,
    /* If a window lasted longer, its watch has no result, because other blocks may lie on the line
     * by then. */
    LATE_NS = 20 * 1000 * 1000,
    FIRST_NS = 30 * 1000 * 1000, /* from the beginning of the process to the first watch */
    NEXT_NS = 1000 * 1000,       /* from a watch to the next one, at least */
    /* From a search that found no line to the next one. Each further search in vain doubles the
     * time, because a search visits all live blocks. */
    NOTHING_NS = 20 * 1000 * 1000,
    NOTHING_MOST_NS = 64 * NOTHING_NS,
    /* After the first EARLY watches, all watches together take at most one part in PART_OF_LIFE of
     * the process's life. */
    EARLY = 4,
    PART_OF_LIFE = 8,
};

_Atomic uint64_t line_watch_next = UINT64_MAX;

static struct layout_watches *counts; /* NULL: there are no watches */
static struct random lots;
static double ticks_per_ns;
static uint64_t begun_ticks;

/* Protects `threads`. */
static struct futex_lock lock;
static int threads[THREADS_MOST]; /* kernel's numbers of threads; 0: unused entry */

/* One bit for each thread for which `threads` had no entry when it began. The probe's numbers of
 * threads, modulo 2^16, are the places of the bits. */
static _Atomic uint64_t unwatched[(UINT16_MAX + 1) / 64];

/* The lines that were watched with a result. They are not watched again. */
static uintptr_t concluded[LAYOUT_WATCHES];

static uint64_t late_ticks;              /* total time of the watches without a result */
static uint64_t nothing_ns = NOTHING_NS; /* to the next search, if this one finds no line */

/* The present watch. */
static struct watched_line line;
static uint8_t left;              /* words of `line` that later windows will watch */
static uint64_t window_began;     /* when the present window began; 0: no watch is on */
static uint64_t watched_ticks;    /* total time of the watch's windows so far */
static int watched[THREADS_MOST]; /* threads whose writes are counted */
static bool wrote[THREADS_MOST];  /* whether each of these threads wrote to the line */
/* Descriptors of the events, four for each of these threads; 0: none. */
static int events[THREADS_MOST][BREAKPOINTS];

static uint64_t ticks_of(uint64_t ns)
{
    return (uint64_t)((double)ns * ticks_per_ns);
}

static void next_after(uint64_t ns)
{
    atomic_store_explicit(&line_watch_next, ticks_now() + ticks_of(ns), memory_order_relaxed);
}

/* Returns the nanoseconds since the process began to count, and sets ticks_per_ns. */
static uint64_t lived_ns(void)
{
    uint64_t lived = direct_now_ns() - session.head->ns_begin;
    if (lived != 0)
        ticks_per_ns = (double)(ticks_now() - session.head->ticks_begin) / (double)lived;
    return lived;
}

void line_watch_begin(struct layout_watches *where, uint64_t seed)
{
    counts = where;
    lots = random_of(~seed);
    begun_ticks = ticks_now();
    /* The length of a tick is not known yet, so FIRST_NS is taken as a number of ticks. If ticks
     * are shorter than 1 ns, the first step comes early. */
    atomic_store_explicit(&line_watch_next, begun_ticks + FIRST_NS, memory_order_relaxed);
}

/* --- the search for a line ------------------------------------------------------------------- */

static bool was_watched(uintptr_t address)
{
    for (size_t i = 0; i < COUNT_OF(concluded); i++)
        if (concluded[i] == address)
            return true;
    return false;
}

void line_search_end(struct line_search *search)
{
    if (search->shared && !was_watched(search->line.address) &&
        random_below(&lots, ++search->seen) == 0)
        *search->drawn = search->line;
    search->shared = false;
    search->line = (struct watched_line){.address = 0};
}

static bool is_unwatched(uint16_t thread)
{
    uint64_t word = atomic_load_explicit(&unwatched[thread / 64], memory_order_relaxed);
    return (word >> thread % 64 & 1) != 0;
}

/* Adds the bytes [from, to) of a line, which belong to a block. A block of an unwatched thread does
 * not make the line shared: no breakpoint could see that this thread writes to it. */
static void add(struct line_search *search, uintptr_t from, uintptr_t to, size_t bytes,
                uint16_t thread)
{
    enum { LINE = 1 << LAYOUT_LINE_SHIFT, WORD_SHIFT = 3 };
    uintptr_t address = from & ~(uintptr_t)(LINE - 1);
    if (search->line.address != address) {
        line_search_end(search);
        search->line.address = address;
        search->owned = false;
    }
    if (!is_unwatched(thread)) {
        search->shared |= search->owned && search->thread != thread;
        search->owned = true;
        search->thread = thread;
    }
    search->line.block_bytes = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
    for (uintptr_t word = from >> WORD_SHIFT; word <= (to - 1) >> WORD_SHIFT; word++)
        search->line.words |= (uint8_t)(1u << word % WORDS);
}

/* Adds the first and the last line of a block. The lines between them hold no other block. */
void line_search_block(struct line_search *search, uintptr_t start, size_t bytes, uint16_t thread)
{
    enum { LINE = 1 << LAYOUT_LINE_SHIFT };
    uintptr_t end = start + (bytes != 0 ? bytes : 1), first_end = (start | (LINE - 1)) + 1;
    uintptr_t last = (end - 1) & ~(uintptr_t)(LINE - 1);
    add(search, start, end < first_end ? end : first_end, bytes, thread);
    if (last >= first_end)
        add(search, last, end, bytes, thread);
}

/* --- threads ---------------------------------------------------------------------------------- */

/* Returns false if no entry has the value `old`. */
static bool replace(int old, int new)
{
    bool found = false;
    futex_lock_take(&lock);
    for (size_t i = 0; i < THREADS_MOST && !found; i++)
        if (threads[i] == old) {
            threads[i] = new;
            found = true;
        }
    futex_lock_drop(&lock);
    return found;
}

static _Atomic uint64_t *word_of(const struct thread_state *me)
{
    return &unwatched[(uint16_t)me->number / 64];
}

static uint64_t bit_of(const struct thread_state *me)
{
    return UINT64_C(1) << me->number % 64;
}

void line_watch_thread_begins(const struct thread_state *me)
{
    if (counts != NULL && !direct_forbidden && !replace(0, (int)direct_call0(SYS_gettid)))
        atomic_fetch_or_explicit(word_of(me), bit_of(me), memory_order_relaxed);
}

void line_watch_thread_ends(const struct thread_state *me)
{
    if (counts == NULL || direct_forbidden)
        return;
    atomic_fetch_and_explicit(word_of(me), ~bit_of(me), memory_order_relaxed);
    (void)replace((int)direct_call0(SYS_gettid), 0);
}

/* --- events ----------------------------------------------------------------------------------- */

/* Opens an event that counts at most HITS_MOST writes of a thread to a word. Returns its
 * descriptor, or -errno. */
static long open_event(int thread, uintptr_t word)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_BREAKPOINT,
        .size = sizeof attr,
        .sample_period = 1, /* PERF_EVENT_IOC_REFRESH below requires a period */
        .disabled = 1,
        .exclude_kernel = 1,
        .exclude_hv = 1,
        .bp_type = HW_BREAKPOINT_W,
        .bp_addr = word,
        .bp_len = HW_BREAKPOINT_LEN_8,
    };
    long fd = direct_try(SYS_perf_event_open, (long)&attr, thread, -1, -1, PERF_FLAG_FD_CLOEXEC, 0);
    if (direct_failed(fd))
        return fd;
    fd = direct_move_up(fd);
    if (direct_failed(fd))
        return fd;
    long begun = direct_try(SYS_ioctl, fd, PERF_EVENT_IOC_REFRESH, HITS_MOST, 0, 0, 0);
    if (!direct_failed(begun))
        return fd;
    direct_try(SYS_close, fd, 0, 0, 0, 0, 0);
    return begun;
}

/* Returns false if the program has closed the descriptor, or has given its number to a file of its
 * own. */
static bool is_event(int fd)
{
    uint64_t id;
    return !direct_failed(direct_try(SYS_ioctl, fd, PERF_EVENT_IOC_ID, (long)&id, 0, 0, 0));
}

/* Closes an event and returns the number of writes that it counted. */
static uint64_t close_event(int fd)
{
    uint64_t hits = 0;
    if (!is_event(fd))
        return 0;
    if (direct_try(SYS_read, fd, (long)&hits, sizeof hits, 0, 0, 0) != sizeof hits)
        hits = 0;
    direct_try(SYS_close, fd, 0, 0, 0, 0, 0);
    return hits;
}

static void close_all(void)
{
    for (size_t thread = 0; thread < THREADS_MOST; thread++)
        for (size_t i = 0; i < BREAKPOINTS; i++) {
            if (events[thread][i] != 0 && close_event(events[thread][i]) != 0)
                wrote[thread] = true;
            events[thread][i] = 0;
        }
    window_began = 0;
}

/* --- windows ---------------------------------------------------------------------------------- */

/* Chooses the words of `line` for the next window and removes them from `left`: every second word,
 * or all words if there are enough breakpoints for them. */
static uint8_t next_words(void)
{
    uint8_t chosen = 0;
    bool few = __builtin_popcount(left) <= BREAKPOINTS;
    for (unsigned word = 0, place = 0; word < WORDS; word++)
        if ((left >> word & 1) != 0 && (place++ % 2 == 0 || few))
            chosen |= (uint8_t)(1u << word);
    left &= (uint8_t)~chosen;
    return chosen;
}

/* Begins a window. Returns false if the kernel refuses breakpoints. Threads that have ended
 * meanwhile are left out. */
static bool begin_window(void)
{
    uint8_t words = next_words();
    for (size_t thread = 0; thread < THREADS_MOST; thread++)
        for (unsigned word = 0, i = 0; word < WORDS && watched[thread] != 0; word++) {
            if ((words >> word & 1) == 0)
                continue;
            long fd = open_event(watched[thread], line.address + word * sizeof(uint64_t));
            if (fd == -ESRCH)
                break;
            if (direct_failed(fd)) {
                counts->refused_errno = direct_forbidden ? 0 : (uint32_t)-fd;
                close_all();
                return false;
            }
            events[thread][i++] = (int)fd;
        }
    window_began = ticks_now();
    next_after(WINDOW_NS);
    return true;
}

/* Adds the result of the watch to the counts. */
static void conclude(void)
{
    unsigned writers = 0;
    for (size_t thread = 0; thread < THREADS_MOST; thread++)
        writers += wrote[thread];
    concluded[counts->lines % LAYOUT_WATCHES] = line.address;
    counts->lines++;
    counts->written += writers == 1;
    counts->confirmed += writers >= 2;
    uint64_t ns = (uint64_t)((double)watched_ticks / ticks_per_ns);
    if (ns > counts->longest_ns)
        counts->longest_ns = ns;
    uint32_t bytes = line.block_bytes;
    if (writers < 2)
        return;
    if (counts->least_bytes == 0 || bytes < counts->least_bytes)
        counts->least_bytes = bytes;
    if (bytes > counts->most_bytes)
        counts->most_bytes = bytes;
}

static void begin_watch(bool (*find)(struct watched_line *line))
{
    lived_ns();
    bool is_free = futex_lock_take_soon(&lock);
    if (is_free) {
        memcpy(watched, threads, sizeof watched);
        futex_lock_drop(&lock);
    }
    if (!is_free) {
        next_after(NOTHING_NS);
        return;
    }
    if (!find(&line)) {
        next_after(nothing_ns);
        nothing_ns = 2 * nothing_ns < NOTHING_MOST_NS ? 2 * nothing_ns : NOTHING_MOST_NS;
        return;
    }
    nothing_ns = NOTHING_NS;
    memset(wrote, 0, sizeof wrote);
    left = line.words;
    watched_ticks = 0;
    if (!begin_window())
        atomic_store_explicit(&line_watch_next, UINT64_MAX, memory_order_relaxed);
}

/* Plans the next watch. A watch with a result counts as two windows of WINDOW_NS. A watch without a
 * result counts with its measured time, because it may have lasted for any time. */
static void plan(void)
{
    uint64_t watches = counts->lines + counts->late, lived = lived_ns();
    uint64_t late_ns = (uint64_t)((double)late_ticks / ticks_per_ns);
    uint64_t due_ns = (counts->lines * 2 * WINDOW_NS + late_ns) * PART_OF_LIFE;
    if (watches >= LAYOUT_WATCHES) {
        atomic_store_explicit(&line_watch_next, UINT64_MAX, memory_order_relaxed);
        return;
    }
    next_after(watches < EARLY || due_ns < lived + NEXT_NS ? NEXT_NS : due_ns - lived);
}

void line_watch_step(bool (*find)(struct watched_line *line))
{
    if (counts == NULL)
        return;
    if (direct_forbidden) {
        atomic_store_explicit(&line_watch_next, UINT64_MAX, memory_order_relaxed);
        return;
    }
    if (window_began == 0) {
        begin_watch(find);
        return;
    }
    uint64_t ticks = ticks_now() - window_began;
    close_all();
    watched_ticks += ticks;
    if (ticks > ticks_of(LATE_NS)) {
        counts->late++;
        late_ticks += watched_ticks;
        plan();
        return;
    }
    if (left != 0 && begin_window())
        return;
    if (counts->refused_errno == 0 && !direct_forbidden)
        conclude();
    plan();
}

void line_watch_end(void)
{
    if (counts != NULL && !direct_forbidden && window_began != 0)
        close_all();
    atomic_store_explicit(&line_watch_next, UINT64_MAX, memory_order_relaxed);
    counts = NULL;
}
