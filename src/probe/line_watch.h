/* line_watch.h - finds out whether threads really write to a cache line that holds live blocks of
 * several threads. record/layout.h describes the result.
 *
 * Hardware breakpoints of perf events (perf_event_open(2)) count the writes of each thread to each
 * word of 8 bytes. The processor has four breakpoints, so a line with more than four words to watch
 * takes two windows of some WINDOW_NS each: first every second of these words, and then the others.
 * An event ends by itself after HITS_MOST writes. The events only count: no signal is sent, and the
 * program goes on.
 *
 *     a watch is on  <=>  line_watch_next is the time at which its present window ends
 *     no watch is on  =>  line_watch_next is the time of the next watch, or never
 *
 * Times are in ticks of the clock (base/ticks.h). layout.c calls these functions with its lock held
 * and chooses the lines. Threads beyond THREADS_MOST are not watched, so a line is chosen only if
 * two other threads share it. If the kernel refuses breakpoints, or the process may not make calls,
 * there are no watches.
 */
#ifndef CAIRN_PROBE_LINE_WATCH_H
#define CAIRN_PROBE_LINE_WATCH_H

#include "probe/thread_state.h"
#include "record/layout.h"

#include <stdatomic.h>

/* A cache line that holds live blocks of several threads. */
struct watched_line {
    uintptr_t address;
    uint32_t block_bytes; /* requested bytes of one of these blocks */
    uint8_t words;        /* one bit for each word that holds bytes of live blocks */
};

/* When to call line_watch_step(); UINT64_MAX: never. */
extern _Atomic uint64_t line_watch_next __attribute__((visibility("hidden")));

/* Begins the watches of this process. Their results are counted in `counts`. `seed` is the seed for
 * the random choice of lines. */
void line_watch_begin(struct layout_watches *counts, uint64_t seed);

/* A search among all live blocks for a shared line: a line with blocks of several threads. Blocks
 * of threads that are not watched do not count. Lines that were watched with a result do not count,
 * either. Each shared line is drawn with the same chance. When the search begins, all fields except
 * `drawn` are 0. */
struct line_search {
    struct watched_line *drawn; /* where the drawn line is stored */
    uint64_t seen;              /* number of shared lines so far */
    struct watched_line line;   /* the last line of the last block */
    uint16_t thread;            /* thread of the last watched block on `line` */
    bool owned;                 /* there is such a block */
    bool shared;                /* `line` has watched blocks of two threads */
};

/* Adds a live block. Blocks come in the order of their addresses. */
void line_search_block(struct line_search *search, uintptr_t start, size_t bytes, uint16_t thread);

/* Ends a run of blocks. The next block may lie anywhere. */
void line_search_end(struct line_search *search);

/* Adds the calling thread to the threads whose writes are counted, or removes it. */
void line_watch_thread_begins(const struct thread_state *me);
void line_watch_thread_ends(const struct thread_state *me);

/* Called at the time line_watch_next. If a watch is on, ends its present window, and begins its
 * next window or adds its result to the counts. If no watch is on, begins one on the line that
 * `find` chooses. `find` returns false if there is no such line. */
void line_watch_step(bool (*find)(struct watched_line *line));

/* Ends the present watch without a result: at the end of the process, or in the child of a fork. */
void line_watch_end(void);

#endif
