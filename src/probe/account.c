#include "probe/account.h"

#include "base/ticks.h"
#include "probe/direct_syscall.h"
#include "probe/kernel_calls.h"
#include "probe/layout.h"
#include "probe/next.h"
#include "probe/own_stack.h"
#include "probe/owners.h"
#include "probe/perf_events.h"
#include "probe/preemption.h"

#include <sys/resource.h>

/* Not inlined, so that the struct is not on the stack while its callers call other functions. */
static __attribute__((noinline)) uint64_t thread_faults(void)
{
    struct rusage usage;
    if (direct_failed(direct_call3(SYS_getrusage, RUSAGE_THREAD, (long)&usage, 0)))
        return 0;
    return (uint64_t)(usage.ru_minflt + usage.ru_majflt);
}

/* Starts the clock of an operation. This function does as little as possible, because the processor
 * may finish some of the work only after the clock has started. The measured time would include
 * that work. */
void account_time(struct thread_state *me, enum profile_group group)
{
    me->guard = THREAD_INSIDE;
    me->special |= THREAD_TIMED;
    me->kernel_calls = 0;
    me->kernel_ticks = 0;
    if (UNLIKELY(direct_forbidden))
        me->faults_wanted = me->counted = false;
    if (me->faults_wanted)
        me->faults = thread_faults();
    if (me->counted)
        me->counted = perf_events_before(me);
    me->alone &= group != PROFILE_LARGE;
    preemption_watch();
    me->began_ticks = me->alone ? ticks_before() : ticks_now();
}

static void take_watched(void *given)
{
    struct thread_state *me = given;
    const void *block = me->given;
    if (UNLIKELY(call_stacks_way != CALL_STACKS_OFF))
        call_stacks_remove(me, block);
    if (UNLIKELY(layout_way != LAYOUT_OFF))
        layout_remove(me, block);
    if (watched_maybe_counted(block) && watched_take(block, &me->watched))
        me->special |= THREAD_WATCHED;
}

void account_take_watched(struct thread_state *me, const void *block)
{
    me->guard = THREAD_INSIDE;
    me->given = block;
    if (UNLIKELY(call_stacks_way != CALL_STACKS_OFF))
        own_stack_call(take_watched, me);
    else
        take_watched(me);
}

static void count_owner(struct thread_state *me, const void *block)
{
    struct owner owner = owners_take(block);
    if (owner.thread == 0)
        return;
    enum profile_whose whose = owner.thread == me->number ? PROFILE_LOCAL : PROFILE_REMOTE;
    me->counts->frees[whose][account_phase()][owner.group]++;
}

void account_take_freed(struct thread_state *me, const void *block)
{
    account_take_watched(me, block);
    if ((me->special & THREAD_EXACT) != 0)
        count_owner(me, block);
    if ((me->special & THREAD_WATCHED) != 0) {
        if (layout_way != LAYOUT_OFF && profile_group(me->watched.bytes) != PROFILE_LARGE)
            layout_freed(me, block);
        account_time(me, profile_group(me->watched.bytes));
    }
}

/* Begins and counts the operation free(NULL), or delete of a null pointer. */
void account_enter_without(struct thread_state *me)
{
    me->counts->released[PROFILE_FREE_NULL - PROFILE_ALLOCATING][account_phase()]++;
    me->guard = THREAD_INSIDE;
}

/* --- times, events and page faults ------------------------------------------------------------ */

/* The time that an operation took, and whether its thread lost the processor. Both are read at the
 * end of the operation, before the probe does anything else. */
struct reading {
    uint64_t ticks;
    bool switched;
};

static struct reading read_end(struct thread_state *me)
{
    uint64_t now = me->alone ? ticks_after() : ticks_now();
    /* Without fences the processor may take the second reading before the first one. */
    struct reading end = {.ticks = now > me->began_ticks ? now - me->began_ticks : 0};
    end.switched = preemption_occurred(); /* read before a system call can cause a switch */
    /* Another thread may have installed a filter of system calls during the operation. */
    if (UNLIKELY(direct_forbidden))
        me->faults_wanted = me->counted = false;
    if (me->counted)
        me->counted = perf_events_after(me);
    if (me->faults_wanted)
        me->faults = thread_faults() - me->faults;
    return end;
}

/* Adds `copies` to a bucket. A full bucket stays at UINT32_MAX. */
static void note_bucket(uint32_t *bucket, uint64_t copies)
{
    uint32_t old = __atomic_load_n(bucket, __ATOMIC_RELAXED), new;
    do {
        new = copies < UINT32_MAX - old ? old + (uint32_t)copies : UINT32_MAX;
    } while (
        !__atomic_compare_exchange_n(bucket, &old, new, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

/* Adds the time of an operation to one of the three totals of its path (struct profile_times).
 * There is a total for operations that lost the processor, one for operations timed alone, and one
 * for all others. */
static void note_times(struct thread_state *me, struct profile_times *times, struct reading end,
                       uint64_t copies)
{
    uint64_t dispatching = me->kernel_calls * kernel_calls_cost_ticks();
    uint64_t taken =
        end.ticks > dispatching + me->kernel_ticks ? end.ticks - dispatching : me->kernel_ticks;
    /* A system call of the allocator may itself give the processor away. The switch is then part of
     * the operation's time. */
    if (end.switched && me->kernel_calls == 0) {
        session_add(&times->switched, 1);
        session_add(&times->switched_ticks, taken);
        return;
    }
    if (me->alone) {
        session_add(&times->alone, copies);
        session_add(&times->alone_ticks, copies * taken);
        return;
    }
    session_add(&times->count, copies);
    session_add(&times->ticks, copies * taken);
    session_raise(&times->max_ticks, taken);
    if (me->kernel_calls != 0) {
        session_add(&times->kernel, copies);
        session_add(&times->kernel_ticks, copies * me->kernel_ticks);
    }
    note_bucket(&times->buckets[profile_bucket(taken)], copies);
}

static void note_faults(struct thread_state *me, struct profile_times *times, uint64_t copies)
{
    session_add(&times->fault_operations, copies);
    session_add(&times->faults, copies * me->faults);
    session_add(&times->faults_squared, copies * me->faults * me->faults);
}

static void note_events(const struct thread_state *me, struct profile_times *times, uint64_t copies)
{
    enum { SQUARED_MAX = 1 << 24 };
    session_add(&times->event_operations, copies);
    for (unsigned slot = 0; slot < PROFILE_SLOTS; slot++) {
        uint64_t events = me->events[slot];
        uint64_t squared = events < SQUARED_MAX ? events : SQUARED_MAX;
        session_add(&times->events[slot], copies * events);
        session_add(&times->events_squared[slot], copies * squared * squared);
    }
}

/* Adds the measurements of an operation to its path, once for each of its copies (struct
 * profile_times). An operation whose faults or events were read is slower by the system calls that
 * read them. So its time is added only if the operation is large, because a large operation takes
 * much longer than these system calls. */
static void note_timed(struct thread_state *me, struct profile_times *times,
                       enum profile_group group, struct reading end, uint64_t copies)
{
    if (me->faults_wanted)
        note_faults(me, times, copies);
    if (me->counted)
        note_events(me, times, copies);
    if ((!me->faults_wanted && !me->counted) || group == PROFILE_LARGE)
        note_times(me, times, end, copies);
}

/* Returns the first of the paths (enum profile_path) that allocations by this function can take.
 * `is_new` is true if the memory was never handed out before. */
static uint32_t path_of(enum profile_function function, bool is_new)
{
    switch (profile_kind(function)) {
    case PROFILE_KIND_PLAIN:
        return is_new ? PROFILE_NEW_MEMORY : PROFILE_REUSED_MEMORY;
    case PROFILE_KIND_CALLOC:
        return PROFILE_TIMED_CALLOC;
    case PROFILE_KIND_REALLOC:
        return PROFILE_TIMED_REALLOC;
    default:
        return PROFILE_TIMED_ALIGNED;
    }
}

/* Returns the bucket of a size. Each size below 4 bytes has its own bucket. Above, each octave
 * (from one power of two to the next) has four buckets. */
static uint32_t size_bucket(uint64_t bytes)
{
    if (bytes < 4)
        return (uint32_t)bytes;
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(bytes);
    uint32_t bucket = (octave - 1) * 4 + (uint32_t)((bytes >> (octave - 2)) & 3);
    return bucket < PROFILE_SIZE_BUCKETS ? bucket : PROFILE_SIZE_BUCKETS - 1;
}

static void add_moment(void *nothing)
{
    (void)nothing;
    if (UNLIKELY(session.head == NULL)) /* see is_lost() */
        return;
    session_moment(live_now());
    layout_moment();
}

/* Ends an operation. If the operation was timed and it is time for the next record of the whole
 * process (struct profile_moment), adds this record to the file. */
static void leave(struct thread_state *me, bool timed)
{
    if (thread_was_forked(me))
        return;
    uint64_t due = atomic_load_explicit(&session.next_moment_ticks, memory_order_relaxed);
    if (timed && UNLIKELY(ticks_now() >= due) &&
        atomic_compare_exchange_strong(&session.next_moment_ticks, &due, UINT64_MAX))
        own_stack_call(add_moment, NULL);
    if (timed && UNLIKELY(layout_watch_due()))
        layout_watch();
    thread_is_idle(me);
    if (UNLIKELY(me->layout_entry != NULL))
        me->special |= THREAD_PAIR;
    me->guard = THREAD_OUTSIDE;
}

/* Watches the block that an operation returned. A watched block that realloc moved stays watched.
 * Every large block is watched with weight 1. If realloc makes a large block small or medium, the
 * block stays watched only with probability 1 / session.gap, and then gets the weight session.gap,
 * because small and medium blocks are sampled with this probability. */
static void watch(struct thread_state *me, const void *block, size_t bytes, size_t usable)
{
    bool large = profile_group(bytes) == PROFILE_LARGE;
    if ((me->special & THREAD_WATCHED) != 0) {
        bool was_large = profile_group(me->watched.bytes) == PROFILE_LARGE;
        if (was_large && !large && random_below(&me->random, session.gap) != 0)
            return;
        if (was_large != large)
            me->watched.weight = large ? 1 : session.gap;
        me->watched.bytes = bytes;
        me->watched.usable = usable;
        watched_move(block, me->watched, &me->random);
        return;
    }
    struct watched about = {
        .ticks = ticks_now(),
        .bytes = bytes,
        .usable = usable,
        .thread = me->number,
        .weight = large ? 1 : session.gap,
    };
    watched_add(block, about, &me->random);
}

/* Adds a timed allocation to the samples. */
static void note_allocation(struct thread_state *me, enum profile_function function, size_t bytes,
                            bool is_new, struct reading end)
{
    struct profile_samples *samples = session.samples;
    if (UNLIKELY(samples == NULL)) /* see is_lost() */
        return;
    enum profile_group group = profile_group(bytes);
    uint32_t path = path_of(function, is_new) + profile_cell(group, account_phase());
    uint64_t weight = group == PROFILE_LARGE ? 1 : session.gap;
    note_timed(me, &samples->times[path], group, end, 1);
    session_add(&samples->sizes[size_bucket(bytes)], weight);
}

/* Returns the usable bytes of a block by malloc_usable_size(). Returns 0 if that function and
 * malloc belong to different libraries. malloc_usable_size() may make system calls, so this
 * function is called after the time of the operation was added to the totals. */
static size_t usable_bytes(struct thread_state *me, const void *block)
{
    if (!session.measures)
        return 0;
    me->asking = true;
    size_t usable = next.malloc_usable_size((void *)(uintptr_t)block);
    me->asking = false;
    live_verify(block, usable);
    return usable;
}

static void note_usable(size_t bytes, size_t usable)
{
    struct profile_samples *samples = session.samples;
    uint64_t weight = profile_group(bytes) == PROFILE_LARGE ? 1 : session.gap;
    watched_sampled(bytes, usable, weight);
    if (UNLIKELY(samples == NULL)) /* see is_lost() */
        return;
    session_add(&samples->asked_bytes, weight * bytes);
    session_add(&samples->usable_bytes, weight * usable);
}

/* Called for an operation that is not counted. If the thread has ended, `block` no longer counts as
 * live: libc frees a thread's own memory after the thread's end. Nothing happens if the allocator
 * itself called the function, as delete calls free. Always returns false. */
bool account_enter_late(const struct thread_state *me, const void *block)
{
    if (me->guard != THREAD_ENDED || me->late != 1 || block == NULL)
        return false;
    live_subtract_late(block);
    call_stacks_remove_late(block);
    return false;
}

/* Returns true if the process forked during this operation, this process is the child, and the
 * child has no file yet. In that case the function sets the guard back to THREAD_UNKNOWN.
 *
 * A signal handler may also fork after this function. If the child can make no file, session.head
 * and session.samples are then NULL. The addresses of the parent's file stay mapped in the child
 * (session_forked()). So a function below that takes both pointers once may go on using them. */
static bool is_lost(struct thread_state *me)
{
    if (LIKELY(session.head != NULL))
        return false;
    me->special = 0;
    me->guard = THREAD_UNKNOWN;
    return true;
}

/* Counts an allocation of memory that was never handed out before. */
static void note_new(struct thread_state *me, enum profile_function function, size_t bytes)
{
    struct profile_head *head = session.head;
    if (path_of(function, true) == PROFILE_NEW_MEMORY)
        me->counts->fresh[account_phase()][profile_group(bytes)]++;
    else if (LIKELY(head != NULL)) /* see is_lost() */
        session_add(&head->fresh_others[profile_group(bytes)], 1);
}

void account_leave_slowly(struct thread_state *me, enum profile_function function,
                          const void *block, size_t bytes)
{
    if (UNLIKELY(is_lost(me)))
        return;
    bool timed = (me->special & THREAD_TIMED) != 0;
    struct reading end = timed ? read_end(me) : (struct reading){.ticks = 0};
    me->guard = THREAD_INSIDE;
    bool is_new = block != NULL && handed_out_add(block, bytes);
    if (is_new)
        note_new(me, function, bytes);
    bool freed = block == NULL && bytes == 0 && profile_kind(function) == PROFILE_KIND_REALLOC;
    if (block == NULL && !freed) {
        struct profile_head *head = session.head;
        if (bytes != 0 && LIKELY(head != NULL)) /* for 0 bytes, NULL is as good as a block */
            session_add(&head->failed[function], 1);
        /* Of other functions, `given` is still the block of the thread's last free. */
        if (profile_kind(function) == PROFILE_KIND_REALLOC && me->given != NULL) {
            live_add(me, me->given, 0);
            if (layout_way != LAYOUT_OFF)
                layout_restore(me, me->given);
            if (call_stacks_way != CALL_STACKS_OFF)
                call_stacks_restore(me, me->given);
        }
        if ((me->special & THREAD_WATCHED) != 0) /* realloc failed: the old block still lives */
            watched_move(me->given, me->watched, &me->random);
    }
    if (timed)
        note_allocation(me, function, bytes, is_new, end);
    if (layout_way != LAYOUT_OFF && block != NULL)
        layout_add(me, block, bytes);
    if (layout_way == LAYOUT_EXACT && !timed && block != NULL)
        layout_sample(me, block, bytes, usable_bytes(me, block));
    if ((me->special & (THREAD_TIMED | THREAD_WATCHED)) != 0 && block != NULL) {
        size_t usable = usable_bytes(me, block);
        if (timed && usable != 0)
            note_usable(bytes, usable);
        if (timed && layout_way != LAYOUT_OFF)
            layout_sample(me, block, bytes, usable);
        watch(me, block, bytes, usable);
        live_estimate();
    }
    if ((me->special & THREAD_EXACT) != 0 && block != NULL)
        owners_note(block, (struct owner){.thread = me->number, .group = profile_group(bytes)});
    if (block != NULL && live_counts(function))
        live_add(me, block, bytes);
    if ((me->special & THREAD_STACK) != 0 && block != NULL)
        call_stacks_add(me, block, bytes);
    leave(me, timed);
}

/* Adds the timed free of a watched block to the samples. */
static void note_release(struct thread_state *me, struct reading end)
{
    struct profile_head *head = session.head;
    struct profile_samples *samples = session.samples;
    if (UNLIKELY(head == NULL || samples == NULL)) /* see is_lost() */
        return;
    const struct watched *watched = &me->watched;
    enum profile_group group = profile_group(watched->bytes);
    bool remote = watched->thread != me->number;
    uint32_t cell = profile_cell(group, account_phase());
    uint32_t path = (remote ? PROFILE_FREE_REMOTE : PROFILE_FREE_LOCAL) + cell;
    /* When a part of the table is full, half of its blocks of a kind are dropped (watched.h). The
     * weights of the blocks of this kind that stay there, and of later ones, then double. */
    uint64_t copies = watched->weight / (group == PROFILE_LARGE ? 1 : session.gap);
    note_timed(me, &samples->times[path], group, end, copies);
    session_add(&head->freed_copies[remote][cell], copies);
    session_add(&head->freed_squares[remote][cell], copies * copies);
    uint64_t life = ticks_now() - watched->ticks;
    uint32_t octave = life != 0 ? 63 - (uint32_t)__builtin_clzll(life) : 0;
    uint32_t bucket = octave < PROFILE_LIFE_BUCKETS ? octave : PROFILE_LIFE_BUCKETS - 1;
    session_add(&samples->lives[group][bucket], watched->weight);
    session_add(&samples->freed[group], watched->weight);
    if (remote)
        session_add(&samples->freed_elsewhere[group], watched->weight);
}

void account_leave_release_slowly(struct thread_state *me)
{
    if (UNLIKELY(is_lost(me)))
        return;
    bool timed = (me->special & THREAD_TIMED) != 0;
    struct reading end = timed ? read_end(me) : (struct reading){.ticks = 0};
    if (timed)
        note_release(me, end);
    leave(me, timed);
}
