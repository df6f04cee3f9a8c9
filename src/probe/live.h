/* live.h - counts the bytes of all live blocks, and the most that were live at once.
 *
 * A block counts with its usable size: the size that malloc_usable_size() returns. Each thread adds
 * the size of every block that it gets and subtracts the size of every block that it gives back. It
 * keeps the sum of these changes to itself until the sum is above the thread's step or below minus
 * the step. Then it folds the sum into the total of the process. The thread's balance is its step
 * plus this sum. Always, in a process that counts:
 *
 *     live bytes                  == total + sum over all threads of (balance - step)
 *     0 <= balance <= 2 * step       for each thread, after each operation
 *     sum of all steps            <= granted <= max(LIVE_LEAST * threads, peak / LIVE_ONE_IN)
 *     |live bytes - total|        <= live_granted, the most that was ever granted (profile.h)
 *
 * So the highest total that a fold has seen differs from the true peak by at most live_granted. The
 * number of threads in the third line is at most LIVE_THREADS.
 *
 * There are three ways to know a size (enum live_way). glibc writes the size in front of each
 * block, and the probe reads it there. Any other allocator is asked by malloc_usable_size(), at a
 * higher price, which the user has to choose: CAIRN_PROBE_LIVE=exact. Without it live bytes are
 * estimated from the watched blocks (watched.h).
 *
 * Any thread may call any function. A thread changes its own balance only. A child of fork begins
 * with the total of its parent. The number of requested bytes is not known when a block is freed.
 * It follows from the total and from the share of usable bytes that was requested
 * (watched_requested()).
 */
#ifndef CAIRN_PROBE_LIVE_H
#define CAIRN_PROBE_LIVE_H

#include "probe/session.h"
#include "probe/thread_state.h"

enum {
    LIVE_LEAST = 8 << 10, /* bytes granted to each thread of a small program */
    LIVE_THREADS = 8,
    LIVE_ONE_IN = 128,
};

enum live_way {
    LIVE_ESTIMATED, /* live bytes are estimated, not counted */
    LIVE_BY_HEADER, /* counted; sizes are read from glibc's block headers */
    LIVE_BY_CALL,   /* counted; malloc_usable_size() returns the sizes */
};

/* The balance of one thread. It lies in memory that a fork copies, so that the child finds the
 * balances of all threads of its parent. */
struct live_thread {
    uint64_t balance; /* step + bytes that are not folded yet */
    uint64_t limit;   /* 2 * step */
    uint64_t step;
    struct live_thread *next;   /* next one in the list of all balances */
    struct live_thread *vacant; /* next one in the list of unused balances */
} __attribute__((aligned(64)));

/* Set before the first thread counts. Becomes LIVE_ESTIMATED if a size turns out to be wrong. */
extern uint8_t live_way __attribute__((visibility("hidden")));

/* Called when a block was added to the watched blocks (watched.h). If live bytes are estimated, and
 * the new estimate is the highest so far, notes it in the file as the peak. */
void live_estimate(void);

/* Chooses live_way. Called once for each program, when session.measures is known and before the
 * first thread counts. */
void live_begin(void);

/* Gives the thread a balance. If there is no memory for a balance, live bytes are no longer counted
 * in this process. */
void live_thread_begin(struct thread_state *me);

/* Folds the balance of a thread that ends, and makes the balance available to the next thread. */
void live_thread_end(struct thread_state *me);

/* Called in the child of a fork by its only thread. Folds the balances of all threads. */
void live_forked(struct thread_state *me);

/* Folds the thread's balance into the total and chooses a new step. */
void live_fold(struct thread_state *me);

/* Slow paths of live_add() and live_subtract(). */
void live_add_slowly(struct thread_state *me, const void *block, size_t bytes);
void live_subtract_slowly(struct thread_state *me, const void *block);

/* live_add_late() adds a block, and live_subtract_late() subtracts one, after the thread has ended
 * and has no balance any more. */
void live_add_late(const void *block, size_t bytes);
void live_subtract_late(const void *block);

/* Compares the size in a block's header with `usable`, the size from malloc_usable_size(). The size
 * in the header must be 0 to 8 bytes larger (see live_header_bytes()). Otherwise live bytes are no
 * longer counted. Does nothing if sizes are not read from headers. */
void live_verify(const void *block, size_t usable);

/* Returns the total: the usable bytes of the live blocks, without those that threads have not
 * folded yet. Called only if live bytes are counted. */
uint64_t live_counted(void);

/* Returns the bytes that are live now, counted or else estimated. */
struct live live_now(void);

/* Returns the size of a block as glibc's malloc wrote it in front of the block: the size of the
 * chunk, whose lowest three bits are flags, less the header. Of blocks with a mapping of their own
 * the usable size is 8 bytes less. This difference is the same in live_add() and in
 * live_subtract(). */
static inline size_t live_header_bytes(const void *block)
{
    return (((const size_t *)block)[-1] & ~(size_t)7) - sizeof(size_t);
}

/* Adds a block of `bytes` requested bytes that the thread got. `block` is not NULL. */
static inline __attribute__((always_inline)) void live_add(struct thread_state *me,
                                                           const void *block, size_t bytes)
{
    if (UNLIKELY(live_way != LIVE_BY_HEADER)) {
        if (live_way == LIVE_BY_CALL)
            live_add_slowly(me, block, bytes);
        return;
    }
    struct live_thread *mine = me->live;
    uint64_t balance = mine->balance + live_header_bytes(block);
    mine->balance = balance;
    if (UNLIKELY(balance > mine->limit))
        live_fold(me);
}

/* Subtracts a block that the thread is about to give back. `block` is not NULL. */
static inline __attribute__((always_inline)) void live_subtract(struct thread_state *me,
                                                                const void *block)
{
    if (UNLIKELY(live_way != LIVE_BY_HEADER)) {
        if (live_way == LIVE_BY_CALL)
            live_subtract_slowly(me, block);
        return;
    }
    struct live_thread *mine = me->live;
    size_t bytes = live_header_bytes(block);
    uint64_t balance = mine->balance;
    mine->balance = balance - bytes;
    if (UNLIKELY(balance < bytes))
        live_fold(me);
}

#endif
