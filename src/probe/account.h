/* account.h - counts each operation of the allocator, from the program's call to its return, and
 * times a sample of them.
 *
 * An interposed function calls account_enter() or account_enter_release(), then the allocator's
 * function of the same name, then account_leave() or account_leave_release():
 *
 *     if (!account_enter(me, …))
 *         return next.malloc(…);              not counted
 *     block = next.malloc(…);
 *     account_leave(me, …);
 *
 * account_enter() returns false if the probe is off, if the thread has ended, or if the allocator
 * itself called the interposed function. Between account_enter() and account_leave() the thread's
 * guard is THREAD_INSIDE (thread_state.h). While it is, the allocator's own calls of interposed
 * functions are not counted. If a longjmp or an exception leaves an operation,
 * interpose_nonallocating.c ends the operation. If that file does not see the jump, the thread's
 * next operation notices it from the stack pointer. errno stays as the allocator left it.
 */
#ifndef CAIRN_PROBE_ACCOUNT_H
#define CAIRN_PROBE_ACCOUNT_H

#include "base/cpu.h"
#include "probe/call_stacks.h"
#include "probe/handed_out.h"
#include "probe/live.h"
#include "probe/session.h"
#include "probe/thread.h"
#include "probe/thread_state.h"

/* The slow paths of the inline functions below. They run with the guard at THREAD_INSIDE. */
void account_time(struct thread_state *me, enum profile_group group);
void account_take_watched(struct thread_state *me, const void *block);
void account_take_freed(struct thread_state *me, const void *block);
void account_enter_without(struct thread_state *me);
bool account_enter_late(const struct thread_state *me, const void *block);
void account_leave_slowly(struct thread_state *me, enum profile_function function,
                          const void *block, size_t bytes);
void account_leave_release_slowly(struct thread_state *me);

/* Returns true if this operation must be counted. In that case the caller counts the operation and
 * sets the guard to THREAD_INSIDE. `given` is the number of bytes requested, or the address of the
 * block to free. */
static inline __attribute__((always_inline)) bool
account_begin(struct thread_state *me, enum profile_function function, uintptr_t given)
{
    if (UNLIKELY(me->guard != THREAD_OUTSIDE) &&
        !thread_enter_slowly(me, cpu_stack, function, given))
        return false;
    me->frame = cpu_stack;
    me->function = (uint8_t)function;
    return true;
}

static inline enum profile_phase account_phase(void)
{
    return (enum profile_phase)atomic_load_explicit(&session.parallel, memory_order_relaxed);
}

static inline __attribute__((always_inline)) void account_count(struct thread_state *me,
                                                                enum profile_function function,
                                                                enum profile_group group,
                                                                size_t bytes)
{
    struct profile_thread *counts = me->counts;
    enum profile_phase phase = account_phase();
    counts->calls[function][phase][group]++;
    counts->bytes[function][phase][group] += bytes;
}

/* Begins an allocation and counts it. A large allocation is always timed, a small or medium one at
 * random. `old` is the block passed to realloc; for other functions it is NULL. Returns false if
 * the operation must not be counted. */
static inline __attribute__((always_inline)) bool account_enter(struct thread_state *me,
                                                                enum profile_function function,
                                                                size_t bytes, const void *old)
{
    if (UNLIKELY(!account_begin(me, function, bytes)))
        return account_enter_late(me, old);
    if (profile_kind(function) == PROFILE_KIND_REALLOC)
        me->given = old;
    if (old != NULL) {
        live_subtract(me, old);
        if (UNLIKELY(watched_maybe(old)))
            account_take_watched(me, old);
    }
    if (UNLIKELY(bytes > PROFILE_MEDIUM_MAX)) {
        /* A request of 2^47 bytes or more always fails. It is counted as a call without bytes. */
        account_count(me, function, PROFILE_LARGE, bytes >> 47 == 0 ? bytes : 0);
        if (UNLIKELY(call_stacks_due(me, bytes >> 47 == 0 ? bytes : 0)))
            call_stacks_choose(me);
        account_time(me, PROFILE_LARGE);
    } else {
        account_count(me, function, (enum profile_group)(bytes > PROFILE_SMALL_MAX), bytes);
        if (UNLIKELY(call_stacks_due(me, bytes)))
            call_stacks_choose(me);
        if (UNLIKELY(--me->until_timed == 0))
            account_time(me, PROFILE_SMALL);
    }
    me->guard = THREAD_INSIDE;
    return true;
}

/* Returns whether the function's blocks count as live. The blocks of an aligned function do not if
 * the function belongs to another library than malloc. */
static inline bool live_counts(enum profile_function function)
{
    return profile_kind(function) != PROFILE_KIND_ALIGNED || !session.foreign[function];
}

/* Called after an operation for which account_enter_release() or account_begin() returned false. */
static inline void account_late_release(struct thread_state *me)
{
    if (me->guard == THREAD_ENDED && me->late != 0)
        me->late--;
}

/* Called after an allocation for which account_enter() returned false. If the thread has ended, and
 * if the allocator itself did not call the function, adds the block to the live ones. Returns
 * `block`. */
static inline void *account_late(struct thread_state *me, enum profile_function function,
                                 void *block, size_t bytes)
{
    if (me->guard == THREAD_ENDED && me->late == 1 && block != NULL && live_counts(function))
        live_add_late(block, bytes);
    account_late_release(me);
    return block;
}

/* Ends an allocation. The quick path needs two conditions: no bit of enum thread_special is set,
 * and the memory of the block was handed out before. */
static inline __attribute__((always_inline)) void account_leave(struct thread_state *me,
                                                                enum profile_function function,
                                                                const void *block, size_t bytes)
{
    if (LIKELY(me->special == 0)) {
        me->guard = THREAD_OUTSIDE;
        if (LIKELY(handed_out_is_noted(block)) &&
            (LIKELY(bytes <= PROFILE_SMALL_MAX) ||
             handed_out_is_noted((const char *)block + bytes - 1))) {
            if (LIKELY(live_counts(function)))
                live_add(me, block, bytes);
            return;
        }
    }
    account_leave_slowly(me, function, block, bytes);
}

/* Begins a free or delete and counts the operation. The operation is timed if its block is watched.
 * Returns false if the operation must not be counted. */
static inline __attribute__((always_inline)) bool
account_enter_release(struct thread_state *me, enum profile_function function, const void *block)
{
    if (UNLIKELY(!account_begin(me, function, (uintptr_t)block)))
        return account_enter_late(me, block);
    if (UNLIKELY(block == NULL)) {
        account_enter_without(me);
        return true;
    }
    live_subtract(me, block);
    me->counts->released[function - PROFILE_ALLOCATING][account_phase()]++;
    if (UNLIKELY(watched_maybe(block)))
        account_take_freed(me, block);
    me->guard = THREAD_INSIDE;
    return true;
}

static inline __attribute__((always_inline)) void account_leave_release(struct thread_state *me)
{
    if (LIKELY(me->special == 0))
        me->guard = THREAD_OUTSIDE;
    else
        account_leave_release_slowly(me);
}

#endif
