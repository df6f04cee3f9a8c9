#include "probe/account.h"

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
    me->timed = true;
    me->kernel_calls = 0;
    me->kernel_ticks = 0;
    me->faults_wanted = random_next(&me->random) % FAULTS_ONE_IN == 0;
    if (me->faults_wanted)
        me->faults_before = thread_faults();
    canary_set();
    me->began_ticks = ticks_before();
}

void account_take_watched(struct self *me, const void *block)
{
    me->has_watched = watched_take(block, &me->watched);
}

void account_failed(enum profile_function function, size_t bytes)
{
    if (function != PROFILE_REALLOC || bytes != 0) /* realloc(p, 0) frees */
        session_add(&session.head->failed[function], 1);
}

/* --- what was timed ----------------------------------------------------------------------------------------------- */

static void note_times(struct self *me, struct profile_times *times, uint64_t ticks, bool switched)
{
    uint64_t dispatching = me->kernel_calls * kernel_calls_cost_ticks();
    uint64_t taken = ticks > dispatching + me->kernel_ticks ? ticks - dispatching : me->kernel_ticks;
    if (switched && me->kernel_calls == 0) { /* a call of the kernel may rightly give the processor away */
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

static void note_faults(struct self *me, struct profile_samples *samples)
{
    if (!me->faults_wanted)
        return;
    session_add(&samples->fault_operations, 1);
    session_add(&samples->faults, thread_faults() - me->faults_before);
}

static enum profile_path path_of(enum profile_function function, bool is_new, size_t bytes)
{
    uint32_t phase = account_phase();
    uint32_t cell = (uint32_t)profile_group(bytes) * PROFILE_PHASES + phase;
    switch (function) {
    case PROFILE_MALLOC:
    case PROFILE_NEW:
    case PROFILE_NEW_ARRAY:
        return (enum profile_path)((is_new ? PROFILE_NEW_MEMORY : PROFILE_REUSED_MEMORY) + cell);
    case PROFILE_CALLOC:
        return (enum profile_path)(PROFILE_TIMED_CALLOC + phase);
    case PROFILE_REALLOC:
    case PROFILE_REALLOCARRAY:
        return (enum profile_path)(PROFILE_TIMED_REALLOC + phase);
    default:
        return (enum profile_path)(PROFILE_TIMED_ALIGNED + phase);
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

static void end(struct self *me)
{
    me->timed = false;
    me->has_watched = false;
    if (thread_was_forked(me))
        return;
    uint64_t due = atomic_load_explicit(&session.next_moment_ticks, memory_order_relaxed);
    if (UNLIKELY(ticks_now() >= due) &&
        atomic_compare_exchange_strong(&session.next_moment_ticks, &due, UINT64_MAX))
        session_moment(watched_live_bytes());
    me->guard = SELF_OUTSIDE;
}

/* A block that moved by realloc stays watched; a large one stands for itself. */
static void watch(struct self *me, const void *block, size_t bytes)
{
    bool large = profile_group(bytes) == PROFILE_LARGE;
    if (me->has_watched) {
        me->watched.bytes = bytes;
        if (large)
            me->watched.weight = 1;
        watched_move(block, me->watched, &me->random);
        return;
    }
    struct watched about = {
        .ticks = ticks_now(), .bytes = bytes, .thread = me->number, .weight = large ? 1 : session.gap};
    watched_add(block, about, &me->random);
}

void account_timed(struct self *me, enum profile_function function, const void *block, size_t bytes,
                   bool is_new, uint64_t ticks)
{
    bool switched = canary_is_gone(); /* before a call of the kernel */
    struct profile_samples *samples = session_samples();
    if (samples != NULL && me->timed) {
        note_faults(me, samples);
        note_times(me, &samples->times[path_of(function, is_new, bytes)], ticks, switched);
        uint64_t weight = profile_group(bytes) == PROFILE_LARGE ? 1 : session.gap;
        session_add(&samples->sizes[size_bucket(bytes)], weight);
        if (block != NULL) {
            session_add(&samples->asked_bytes, weight * bytes);
            session_add(&samples->usable_bytes, weight * usable(block));
        }
    }
    if (block != NULL)
        watch(me, block, bytes);
    end(me);
}

void account_timed_release(struct self *me, uint64_t ticks)
{
    bool switched = canary_is_gone();
    struct profile_samples *samples = session_samples();
    const struct watched *watched = &me->watched;
    if (samples != NULL) {
        enum profile_group group = profile_group(watched->bytes);
        bool remote = watched->thread != me->number;
        uint32_t path = remote ? PROFILE_FREE_REMOTE : PROFILE_FREE_LOCAL;
        note_faults(me, samples);
        note_times(me, &samples->times[path + (uint32_t)group * PROFILE_PHASES + account_phase()], ticks,
                   switched);
        uint64_t life = ticks_now() - watched->ticks;
        uint32_t octave = life != 0 ? 63 - (uint32_t)__builtin_clzll(life) : 0;
        uint32_t bucket = octave < PROFILE_LIFE_BUCKETS ? octave : PROFILE_LIFE_BUCKETS - 1;
        session_add(&samples->lives[group][bucket], watched->weight);
        session_add(&samples->freed[group], watched->weight);
        if (remote)
            session_add(&samples->freed_elsewhere[group], watched->weight);
    }
    end(me);
}
