/* call_stacks.h - records the call stacks of sampled allocations, and the lives of their blocks.
 * record/call_stacks.h describes the result.
 *
 * Each thread counts down the bytes until its next sample (poisson.h), which takes five
 * instructions in each allocation. The slow path of account.h does the rest:
 *
 *     account_enter()   call_stacks_due()     true: call_stacks_choose()
 *     account_leave()   call_stacks_add()     finds the stack (unwind.h) and notes the block
 *     a later free      call_stacks_remove()  if the filter of watched.h has the block
 *
 * A sampled block is counted in watched_filter until it is freed. So the frees of other blocks cost
 * nothing. The table of these blocks has a limit. When it is full, the mean distance of samples is
 * doubled, and each block stays with such a probability that the blocks are a sample with the new
 * distance.
 *
 * account.c and thread.c call these functions from any thread, with a guard other than
 * THREAD_OUTSIDE (thread_state.h). A child of fork begins with no stacks and without the blocks of
 * its parent. If there is no memory or no room for the file, there are no stacks.
 */
#ifndef CAIRN_PROBE_CALL_STACKS_H
#define CAIRN_PROBE_CALL_STACKS_H

#include "probe/thread_state.h"
#include "record/call_stacks.h"

/* enum call_stacks_way. Chosen before the first thread counts. Can become CALL_STACKS_OFF. */
extern uint8_t call_stacks_way __attribute__((visibility("hidden")));

/* Creates the file, if CAIRN_PROBE_STACKS is "sampled" or "exact". Called once for each process, by
 * its first thread that counts. */
void call_stacks_begin(void);

/* Chooses the first sample of a thread. */
void call_stacks_thread_begin(struct thread_state *me);

/* Counts an allocation. Returns true if call_stacks_choose() has to be called. */
static inline __attribute__((always_inline)) bool call_stacks_due(struct thread_state *me,
                                                                  size_t bytes)
{
    me->until_stack -= (int64_t)(bytes + CALL_STACKS_BLOCK_BYTES);
    return me->until_stack < 0;
}

/* Chooses the present allocation as a sample, and then the distance to the next sample. */
void call_stacks_choose(struct thread_state *me);

/* Adds the block that the chosen allocation got, with the stack of the caller. */
void call_stacks_add(struct thread_state *me, const void *block, size_t bytes);

/* call_stacks_remove() ends the life of a sampled block that the thread is about to give back.
 * Signals are blocked meanwhile: a handler that left by longjmp() would leave the lock taken.
 * call_stacks_restore() gives the block its life back after a realloc that failed. */
void call_stacks_remove(struct thread_state *me, const void *block);
void call_stacks_restore(struct thread_state *me, const void *block);

/* Like call_stacks_remove(), for a free by a thread that the probe has already ended. */
void call_stacks_remove_late(const void *block);

/* Finds the live blocks that hold sparse spans, if all blocks were recorded. Called at the end of
 * the process, where a signal handler may have interrupted a function that holds the lock. */
void call_stacks_end(void);

/* Called in the child of a fork, which records no call stacks: ends the recording there. */
void call_stacks_forked(void);

#endif
