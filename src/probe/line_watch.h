/* line_watch.h - finds out whether threads really write to a cache line that holds live blocks of
 * several threads. record/layout.h describes the result.
 *
 * Hardware breakpoints of perf events (perf_event_open(2)) count the writes of each thread to each
 * word of 8 bytes. The processor has four breakpoints, so a line is watched in two windows of some
 * WINDOW_NS each: first every second of its words, and then the others. An event ends by itself
 * after HITS_MOST writes. The events only count: no signal is sent, and the program goes on.
 *
 *     a watch is on  <=>  line_watch_next is the time at which its present window ends
 *     no watch is on  =>  line_watch_next is the time of the next watch, or never
 *
 * Times are in ticks of the clock (base/ticks.h). layout.c calls these functions with its lock held
 * and chooses the lines. Threads beyond THREADS_MOST are not watched. If the kernel refuses
 * breakpoints, or the process may not make calls, there are no watches.
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
    uint8_t words;        /* bits of the words of 8 bytes in which live blocks lie */
};

/* UINT64_MAX: never */
extern _Atomic uint64_t line_watch_next __attribute__((visibility("hidden")));

/* Begins the watches of this process. They count in `counts`. `seed` is that of the draws. */
void line_watch_begin(struct layout_watches *counts, uint64_t seed);

/* A search for a line with blocks of several threads. Each such line is drawn with the same chance.
 * At its beginning, all fields but `drawn` are 0. */
struct line_search {
    struct watched_line *drawn;
    uint64_t seen; /* number of such lines so far */
    /* the line on which the last block was seen, and the thread of its first block */
    struct watched_line line;
    uint16_t thread;
    bool shared; /* another block of this line is of another thread */
};

/* Adds a live block. Blocks come in the order of their addresses. */
void line_search_block(struct line_search *search, uintptr_t start, size_t bytes, uint16_t thread);

/* Ends a run of blocks. The next block may lie anywhere. */
void line_search_end(struct line_search *search);

/* Adds the calling thread to the watched ones, or removes it. */
void line_watch_thread_begins(void);
void line_watch_thread_ends(void);

/* Goes on at line_watch_next. Ends the present window. If no watch is on then, the function begins
 * one on the line that `find` chooses; `find` returns false if there is none. */
void line_watch_step(bool (*find)(struct watched_line *line));

/* Ends the present watch without a result: at the end of the process, or in the child of a fork. */
void line_watch_end(void);

#endif
