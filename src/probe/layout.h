/* layout.h - records where the blocks of the process lie: how full the OS pages and cache lines are
 * that live blocks touch, how far apart consecutive blocks are, and how recently their memory was
 * freed. record/layout.h describes the result.
 *
 * Address space is divided into regions of 32 KiB. The blocks in tracked regions are seen by the
 * slow paths of account.h alone, so untracked ones cost nothing:
 *
 *     a granule of a tracked region, or of the LAYOUT_MARGIN bytes before one, is never set in
 *     handed_out_leaf.granules (handed_out_hide())     =>  its allocation takes the slow path
 *     a live block that touches a tracked region is marked in watched_filter
 *                                                      =>  its free takes the slow path
 *
 * A block of up to LAYOUT_MARGIN bytes that touches a region begins in it or in the margin before
 * it. A longer block of up to 32 KiB begins or ends in each region that it touches, and account.h
 * looks at both ends. Larger blocks always take the slow path. So every block that touches a
 * tracked region is seen.
 *
 * A region is tracked from its first block on, if its hash is below the threshold. The threshold
 * falls by half, and regions above it are forgotten, when too many regions or blocks are tracked or
 * when tracking takes more than a fixed share of the time. CAIRN_PROBE_LAYOUT=thorough allows a
 * larger share than "sampled", and "exact" tracks all regions, at any price.
 *
 * account.c calls these functions from any thread, with the guard at THREAD_INSIDE
 * (thread_state.h). A child of fork has no layout. If there is no memory or no room for the file,
 * there is no layout.
 */
#ifndef CAIRN_PROBE_LAYOUT_H
#define CAIRN_PROBE_LAYOUT_H

#include "base/ticks.h"
#include "probe/line_watch.h"
#include "probe/thread_state.h"
#include "record/layout.h"

enum { LAYOUT_MARGIN = PROFILE_SMALL_MAX };

/* enum layout_way. Chosen before the first thread counts. Can become LAYOUT_OFF. */
extern uint8_t layout_way __attribute__((visibility("hidden")));

/* Creates the file, if CAIRN_PROBE_LAYOUT asks for a layout. Called once for each program, by its
 * first thread that counts. */
void layout_begin(void);

/* Adds a block that the thread got. */
void layout_add(struct thread_state *me, const void *block, size_t bytes);

/* Adds a block to the sample of all allocations. The next allocation of the thread then has to call
 * layout_add(), which adds the distance of the two blocks. `usable` is the block's usable size, or
 * 0 if it is not known. */
void layout_sample(struct thread_state *me, const void *block, size_t bytes, size_t usable);

/* layout_remove() removes a block that the thread is about to give back. layout_restore() adds the
 * block again if the realloc that should give it back has failed. */
void layout_remove(struct thread_state *me, const void *block);
void layout_restore(struct thread_state *me, const void *block);

/* Adds a block, which the thread is about to give back, to the sample of freed blocks. The block
 * stays in the sample until its address is handed out again. */
void layout_freed(const struct thread_state *me, const void *block);

/* layout_moment() and layout_end() take a snapshot, if it is better than the one that is kept.
 * layout_moment() is called at each moment (session.h), and layout_end() at the end of the process.
 * There a signal handler may have interrupted a function that holds the lock, so layout_end() does
 * nothing if the lock is not free soon. */
void layout_moment(void);
void layout_end(void);

/* Both functions do the next step of the watches of shared lines (line_watch.h), if
 * layout_watch_due(). layout_watch() runs on a stack of the probe's own. layout_watch_in_handler()
 * runs on the signal stack of its caller, which must have blocked all signals. */
void layout_watch(void);
void layout_watch_in_handler(void);

static inline bool layout_watch_due(void)
{
    return layout_way != LAYOUT_OFF &&
           ticks_now() >= atomic_load_explicit(&line_watch_next, memory_order_relaxed);
}

/* Called in the child of a fork, which has no layout: ends tracking in this process. */
void layout_forked(void);

#endif
