#include "probe/account.h"

#include "base/ticks.h"
#include "probe/canary.h"
#include "probe/kernel_calls.h"
#include "probe/next.h"
#include "probe/stub.h"

#include <sys/resource.h>

enum { FAULTS_ONE_IN = 8 }; /* timed operations: two looks at the faults cost more than the clock */

static size_t usable(const void *block)
{
    return next.malloc_usable_size != NULL ? next.malloc_usable_size((void *)(uintptr_t)block) : 0;
}

static uint64_t thread_faults(void)
{
    struct rusage usage;
    if (stub_failed(stub_call3(SYS_getrusage, RUSAGE_THREAD, (long)&usage, 0)))
        return 0;
    return (uint64_t)(usage.ru_minflt + usage.ru_majflt);
}

/* Geometric, so that a program with a rhythm of its own does not meet always the same operation: the logarithm of a
 * random number, its mantissa taken for a straight line. The mean is within 6 % of the gap, and nobody relies on it. */
static uint32_t next_gap(struct self *me)
{
    uint64_t x = random_next(&me->random) | 1;
    uint32_t zeroes = (uint32_t)__builtin_clzll(x);
    uint64_t fraction = zeroes == 63 ? 0 : (x << (zeroes + 1)) >> 48; /* of 2^16 */
    uint64_t log2 = ((uint64_t)zeroes << 16) + (0xffff - fraction);
    return 1 + (uint32_t)((log2 * 45426 /* ln 2 */ >> 16) * session.gap >> 16);
}

void account_time(struct self *me)
{
    if (me->until_timed == 0)
        me->until_timed = next_gap(me);
    me->special |= SELF_TIMED;
    me->kernel_calls = 0;
    me->kernel_ticks = 0;
    me->faults_wanted = random_next(&me->random) % FAULTS_ONE_IN == 0;
    if (me->faults_wanted)
        me->faults = thread_faults();
    canary_set();
    me->began_ticks = ticks_before();
}

void account_take_watched(struct self *me, const void *block)
{
    if (watched_take(block, &me->watched))
        me->special |= SELF_WATCHED;
}

/* --- what was timed ----------------------------------------------------------------------------------------------- */

/* What must be read before the probe does anything else. */
struct reading {
    uint64_t ticks;
    bool switched;
};

static struct reading read_end(struct self *me)
{
    struct reading end = {.ticks = ticks_after() - me->began_ticks};
    end.switched = canary_is_gone(); /* before a call of the kernel */
    if (me->faults_wanted)
        me->faults = thread_faults() - me->faults;
    return end;
}

static void note_times(struct self *me, struct profile_times *times, struct reading end)
{
    uint64_t dispatching = me->kernel_calls * kernel_calls_cost_ticks();
    uint64_t taken = end.ticks > dispatching + me->kernel_ticks ? end.ticks - dispatching : me->kernel_ticks;
    if (end.switched &&
        me->kernel_calls == 0) { /* a call of the kernel may rightly give the processor away */
        session_add(&times->switched, 1);
        session_add(&times->switched_ticks, taken);
        return;
    }
    session_add(&times->count, 1);
    session_add(&times->ticks, taken);
    session_raise(&times->max_ticks, taken);
    if (me->kernel_calls != 0) {
        session_add(&times->kernel, 1);
        session_add(&times->kernel_ticks, me->kernel_ticks);
    }
    __atomic_fetch_add(&times->buckets[profile_bucket(taken)], 1, __ATOMIC_RELAXED);
}

static void note_faults(struct self *me, struct profile_times *times)
{
    if (!me->faults_wanted)
        return;
    session_add(&times->fault_operations, 1);
    session_add(&times->faults, me->faults);
}

static uint32_t path_of(enum profile_function function, bool is_new)
{
    switch (function) {
    case PROFILE_MALLOC:
    case PROFILE_NEW:
    case PROFILE_NEW_ARRAY:
        return is_new ? PROFILE_NEW_MEMORY : PROFILE_REUSED_MEMORY;
    case PROFILE_CALLOC:
        return PROFILE_TIMED_CALLOC;
    case PROFILE_REALLOC:
    case PROFILE_REALLOCARRAY:
        return PROFILE_TIMED_REALLOC;
    default:
        return PROFILE_TIMED_ALIGNED;
    }
}

/* Four an octave. */
static uint32_t size_bucket(uint64_t bytes)
{
    if (bytes < 4)
        return (uint32_t)bytes;
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(bytes);
    uint32_t bucket = (octave - 1) * 4 + (uint32_t)((bytes >> (octave - 2)) & 3);
    return bucket < PROFILE_SIZE_BUCKETS ? bucket : PROFILE_SIZE_BUCKETS - 1;
}

static void leave(struct self *me, bool timed)
{
    me->special = 0;
    if (thread_was_forked(me))
        return;
    uint64_t due = atomic_load_explicit(&session.next_moment_ticks, memory_order_relaxed);
    if (timed && UNLIKELY(ticks_now() >= due) &&
        atomic_compare_exchange_strong(&session.next_moment_ticks, &due, UINT64_MAX))
        session_moment(watched_live_bytes());
    me->guard = SELF_OUTSIDE;
}

/* A block that moved by realloc stays watched. Every large one is and stands for itself; one that becomes small is one
 * of many, and draws a lot as they did. */
static void watch(struct self *me, const void *block, size_t bytes)
{
    bool large = profile_group(bytes) == PROFILE_LARGE;
    if ((me->special & SELF_WATCHED) != 0) {
        bool was_large = profile_group(me->watched.bytes) == PROFILE_LARGE;
        if (was_large && !large && random_below(&me->random, session.gap) != 0)
            return;
        if (was_large != large)
            me->watched.weight = large ? 1 : session.gap;
        me->watched.bytes = bytes;
        watched_move(block, me->watched, &me->random);
        return;
    }
    struct watched about = {
        .ticks = ticks_now(), .bytes = bytes, .thread = me->number, .weight = large ? 1 : session.gap};
    watched_add(block, about, &me->random);
}

static void note_allocation(struct self *me, struct profile_samples *samples, enum profile_function function,
                            const void *block, size_t bytes, bool is_new, struct reading end)
{
    enum profile_group group = profile_group(bytes);
    uint32_t path = path_of(function, is_new) + profile_cell(group, account_phase());
    uint64_t weight = group == PROFILE_LARGE ? 1 : session.gap;
    note_faults(me, &samples->times[path]);
    note_times(me, &samples->times[path], end);
    session_add(&samples->sizes[size_bucket(bytes)], weight);
    if (block != NULL) {
        session_add(&samples->asked_bytes, weight * bytes);
        session_add(&samples->usable_bytes, weight * usable(block));
    }
}

void account_leave_slowly(struct self *me, enum profile_function function, const void *block, size_t bytes)
{
    bool timed = (me->special & SELF_TIMED) != 0;
    struct reading end = timed ? read_end(me) : (struct reading){.ticks = 0};
    bool is_new = block != NULL && shadow_hand_out(block, bytes);
    if (is_new && path_of(function, true) == PROFILE_NEW_MEMORY)
        me->counts->fresh[account_phase()][profile_group(bytes)]++;
    if (block == NULL && (function != PROFILE_REALLOC || bytes != 0)) /* realloc(p, 0) frees */
        session_add(&session.head->failed[function], 1);
    struct profile_samples *samples = timed ? session_samples() : NULL;
    if (samples != NULL)
        note_allocation(me, samples, function, block, bytes, is_new, end);
    if (me->special != 0 && block != NULL)
        watch(me, block, bytes);
    leave(me, timed);
}

void account_leave_timed_release(struct self *me)
{
    struct reading end = read_end(me);
    struct profile_samples *samples = session_samples();
    const struct watched *watched = &me->watched;
    if (samples != NULL) {
        enum profile_group group = profile_group(watched->bytes);
        bool remote = watched->thread != me->number;
        uint32_t path =
            (remote ? PROFILE_FREE_REMOTE : PROFILE_FREE_LOCAL) + profile_cell(group, account_phase());
        note_faults(me, &samples->times[path]);
        note_times(me, &samples->times[path], end);
        uint64_t life = ticks_now() - watched->ticks;
        uint32_t octave = life != 0 ? 63 - (uint32_t)__builtin_clzll(life) : 0;
        uint32_t bucket = octave < PROFILE_LIFE_BUCKETS ? octave : PROFILE_LIFE_BUCKETS - 1;
        session_add(&samples->lives[group][bucket], watched->weight);
        session_add(&samples->freed[group], watched->weight);
        if (remote)
            session_add(&samples->freed_elsewhere[group], watched->weight);
    }
    leave(me, true);
}
