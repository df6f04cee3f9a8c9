/* account.h - one operation of the allocator, from the program's call to its return: counted, and some of them timed.
 *
 * A function of ours is
 *
 *     if (!account_enter…(me, …))
 *         return what the next function says;
 *     result = the next function's;
 *     account_leave…(me, …);
 *
 * In between, and no longer, the thread is inside (self.h): what the allocator allocates by the same names is its own
 * affair, and is not counted. An operation that is left by longjmp or an exception is noticed at the thread's next one,
 * by the place of its frame. errno is as the allocator left it.
 */
#ifndef CAIRN_PROBE_ACCOUNT_H
#define CAIRN_PROBE_ACCOUNT_H

#include "base/cpu.h"
#include "probe/self.h"
#include "probe/session.h"
#include "probe/shadow.h"
#include "probe/thread.h"

/* The rare parts. Whatever they do is done inside. */
void account_time(struct self *me, enum profile_group group);
void account_take_watched(struct self *me, const void *block);
void account_take_freed(struct self *me, const void *block);
void account_enter_without(struct self *me);
void account_leave_slowly(struct self *me, enum profile_function function, const void *block,
                          size_t bytes);
void account_leave_release_slowly(struct self *me);

/* Is this an operation to be counted? The caller counts, and then goes inside. */
static inline __attribute__((always_inline)) bool
account_begin(struct self *me, enum profile_function function, size_t bytes)
{
    if (UNLIKELY(me->guard != SELF_OUTSIDE) && !thread_enter_slowly(me, cpu_stack, function, bytes))
        return false;
    me->frame = cpu_stack;
    me->kind = (uint8_t)profile_kind(function);
    return true;
}

static inline enum profile_phase account_phase(void)
{
    return (enum profile_phase)atomic_load_explicit(&session.parallel, memory_order_relaxed);
}

static inline __attribute__((always_inline)) void account_count(struct self *me,
                                                                enum profile_function function,
                                                                enum profile_group group,
                                                                size_t bytes)
{
    struct profile_thread *counts = me->counts;
    enum profile_phase phase = account_phase();
    counts->calls[function][phase][group]++;
    counts->bytes[function][phase][group] += bytes;
}

/* `old` is the block that realloc is given, else NULL. */
static inline __attribute__((always_inline)) bool
account_enter(struct self *me, enum profile_function function, size_t bytes, const void *old)
{
    if (UNLIKELY(!account_begin(me, function, bytes)))
        return false;
    if (UNLIKELY(old != NULL && watched_maybe(old)))
        account_take_watched(me, old);
    if (UNLIKELY(bytes > PROFILE_MEDIUM_MAX)) {
        account_count(me, function, PROFILE_LARGE,
                      bytes >> 47 == 0 ? bytes : 0); /* beyond that nobody has it */
        account_time(me, PROFILE_LARGE);
    } else {
        account_count(me, function, (enum profile_group)(bytes > PROFILE_SMALL_MAX), bytes);
        if (UNLIKELY(--me->until_timed == 0))
            account_time(me, PROFILE_SMALL);
    }
    me->guard = SELF_INSIDE;
    return true;
}

static inline __attribute__((always_inline)) void
account_leave(struct self *me, enum profile_function function, const void *block, size_t bytes)
{
    if (LIKELY(me->special == 0)) {
        me->guard = SELF_OUTSIDE;
        if (LIKELY(shadow_is_noted(block)) && (LIKELY(bytes <= PROFILE_SMALL_MAX) ||
                                               shadow_is_noted((const char *)block + bytes - 1)))
            return;
    }
    account_leave_slowly(me, function, block, bytes);
}

static inline __attribute__((always_inline)) bool
account_enter_release(struct self *me, enum profile_function function, const void *block)
{
    if (UNLIKELY(!account_begin(me, function, 0)))
        return false;
    if (UNLIKELY(block == NULL)) {
        account_enter_without(me);
        return true;
    }
    me->counts->released[function - PROFILE_ALLOCATING][account_phase()]++;
    if (UNLIKELY(watched_maybe(block)))
        account_take_freed(me, block);
    me->guard = SELF_INSIDE;
    return true;
}

static inline __attribute__((always_inline)) void account_leave_release(struct self *me)
{
    if (LIKELY(me->special == 0))
        me->guard = SELF_OUTSIDE;
    else
        account_leave_release_slowly(me);
}

#endif
