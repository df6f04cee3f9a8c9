/* purge.h - decides when idle memory goes back to the machine.
 *
 * Idle memory is free and resident (page_heap.h). There is no timer, and no thread unless
 * background.h starts one. A thread that frees a run checks the clock; now and then, so does a
 * thread that refills its heap. Any thread that does not hold the page heap's lock may call these
 * functions.
 *
 * At the end of an epoch of a quarter of a second, the memory that was idle during the whole epoch
 * was not needed. That memory is given back, except for a slack:
 *
 *     slack == max(1 MiB, used / 32)
 *
 * So a program that shrinks does not keep the memory of its peak. A program that grows and shrinks
 * within each epoch makes no system call to return memory.
 *
 * A program that frees much and then sleeps ends no epoch. So a free gives back memory at once
 *
 *     when idle > used + held, with held == 128 MiB at first,
 *     until idle == (used + 128 MiB) / 2
 *
 * Such a purge was in vain if it gave back at least 64 MiB, and the program takes at least half of
 * that memory again before the next purge. This happens to programs that fill and empty their
 * memory in turns. More idle memory is then kept:
 *
 *     held = used + idle + 128 MiB
 *
 * Each epoch lowers `held` again, by the memory that was not needed, down to 128 MiB. Each purge is
 * judged only by the time until the next purge.
 *
 * A new block of 32 MiB or more may fit into no idle run, for example if a smaller block lies in
 * the middle. The process then grows, although enough memory is idle. If it would become larger
 * than ever before, idle memory of the size of the block goes back first. The program may need this
 * memory again. So these purges together give back at most half of the memory that was ever taken
 * fresh, and a program that repeats its requests soon keeps its memory. Glibc unmaps every block of
 * this size when it is freed.
 */
#ifndef CAIRN_ALLOC_PURGE_H
#define CAIRN_ALLOC_PURGE_H

#include "alloc/page_heap.h"

#include <stdatomic.h>

/* Frees a run, and gives back idle memory if there is too much or if an epoch is over. */
void purge_free(size_t index, size_t slices);

/* If an epoch is over, gives back the memory that was not needed. */
void purge_look(void);

/* Called when a large block of `slices` slices was handed out and is not touched yet. Gives back
 * idle memory if the process is about to become larger than ever before. */
void purge_for_growth(size_t slices);
enum { PURGE_GROWTH_SLICES = (32 << 20) / SLICE_BYTES }; /* nothing is done for less */

/* Returns the number of epochs that have ended. */
uint32_t purge_epoch(void);

/* True if memory was idle at the last look or since then, so that an end of the epoch should be
 * noticed soon (detour.h). */
extern _Atomic bool purge_due __attribute__((visibility("hidden")));
static inline bool purge_is_due(void)
{
    return atomic_load_explicit(&purge_due, memory_order_relaxed);
}

/* For background.h: a thread now checks while the program sleeps, so the least slack becomes 256
 * KiB instead of 1 MiB. Called before the program has a second thread. */
void purge_is_watched(void);

/* For background.h: sleeps until more than the slack is idle, but at most `ms` milliseconds.
 * Returns true if a free ended the sleep. */
bool purge_rest(unsigned ms);

/* For background.h: returns whether the last purge gave back nothing although memory was idle, for
 * example because the memory is locked. */
bool purge_is_refused(void);

/* Returns the present value of `held` (see above), in bytes. */
size_t purge_held_bytes(void);

#endif
