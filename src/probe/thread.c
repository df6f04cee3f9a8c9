#include "probe/thread.h"

#include "base/clock.h"
#include "probe/call_stacks.h"
#include "probe/cpu_timer.h"
#include "probe/direct_syscall.h"
#include "probe/kernel_calls.h"
#include "probe/layout.h"
#include "probe/live.h"
#include "probe/next.h"
#include "probe/own_stack.h"
#include "probe/perf_events.h"
#include "probe/poisson.h"
#include "probe/signal_mask.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>

static pthread_key_t key; /* its destructor runs when a thread ends */
static bool has_key;
static _Atomic uint32_t last_number;

/* Points to a 1 on a page that the kernel fills with zeroes in the child of a fork. NULL if the
 * kernel has no such pages. */
static volatile uint32_t *fork_mark;

/* A dummy for thread_state.counts. No reader sees the counts in it. */
static struct profile_thread unread_counts;

static void on_thread_end(void *argument);
static void before_fork(void);
static void after_fork(void);
static void on_fork(void);

/* --- between operations ----------------------------------------------------------------------- */

/* Returns the number of allocations until the next timed one. The number is geometrically
 * distributed: each small or medium allocation is timed with the probability 1 / session.gap,
 * whatever was timed before. So each timed one stands for session.gap of them. */
static uint32_t next_gap(struct thread_state *me)
{
    if (session.gap <= 1)
        return 1;
    double mean = -1 / poisson_log(1 - 1.0 / session.gap);
    double gap = poisson_gap(&me->random, mean);
    return gap < UINT32_MAX - 1 ? 1 + (uint32_t)gap : UINT32_MAX;
}

void thread_is_idle(struct thread_state *me)
{
    /* Page faults are counted in one of FAULTS_ONE_IN timed operations. Of the other operations,
     * one in ALONE_ONE_IN is timed alone. Of all remaining operations, events are counted in one of
     * COUNTED_ONE_IN. */
    enum { FAULTS_ONE_IN = 8, ALONE_ONE_IN = 4, COUNTED_ONE_IN = 2 };
    me->special = session.exact ? THREAD_EXACT : 0;
    me->section = NULL;
    me->calling = false;
    if (me->until_timed == 0)
        me->until_timed = next_gap(me);
    uint64_t lot = random_next(&me->random) >> 32;
    me->faults_wanted = lot % FAULTS_ONE_IN == 0;
    me->alone = !me->faults_wanted && lot / FAULTS_ONE_IN % ALONE_ONE_IN == 0;
    me->counted = me->counter_slots != 0 && !me->faults_wanted && !me->alone &&
                  lot / (FAULTS_ONE_IN * ALONE_ONE_IN) % COUNTED_ONE_IN == 0;
}

/* --- begin ------------------------------------------------------------------------------------ */

/* Registers the functions that run at the end of a thread and after a fork. Called before the first
 * thread counts. */
static void prepare(void)
{
    static bool done;
    if (done)
        return;
    done = true;
    has_key = pthread_key_create(&key, on_thread_end) == 0;
    pthread_atfork(before_fork, after_fork, on_fork);
    void *page = direct_map(4096);
    if (page != NULL &&
        !direct_failed(direct_call3(SYS_madvise, (long)page, 4096, 18 /* MADV_WIPEONFORK */))) {
        fork_mark = page;
        *fork_mark = 1;
    }
}

struct beginning {
    struct thread_state *me;
    bool announced;
    bool begun;
};

/* Begins a thread; see begin(). */
static bool begin_on_own_stack(struct thread_state *me, bool announced)
{
    int error = errno;
    me->guard = THREAD_BEGINNING;
    if (!next_found() || !session_on()) {
        me->guard = THREAD_UNKNOWN;
        return false;
    }
    prepare();
    if (kernel_calls_may_own_signal())
        own_stack_arm(me);
    if (session.head->dispatch == 0) {
        live_begin();
        layout_begin();
        call_stacks_begin();
        kernel_calls_begin(me);
        perf_events_begin();
    }
    if (session.exact && !watched_maybe(NULL))
        watched_look_at_all();
    /* A thread that began before a fork keeps its number, because the blocks that it allocated
     * before the fork carry this number. */
    if (me->number == 0)
        me->number = atomic_fetch_add(&last_number, 1) + 1;
    me->random = random_of(clock_now_ns() ^ ((uint64_t)me->number << 48));
    me->until_timed = 0;
    thread_is_idle(me);
    /* A thread that pthread_create() did not make may begin in its first round of destructors,
     * after the turn of our key. So it ends one round earlier. */
    me->rounds = announced ? 0 : 1;
    me->late = 0;
    me->counts = session_thread_begin(announced);
    if (me->counts != NULL) {
        live_thread_begin(me);
        call_stacks_thread_begin(me);
        line_watch_thread_begins(me);
        /* From here on, a signal handler that interrupts this function looks like a function that
         * the allocator called, because every stack pointer is below this frame. Its allocations
         * are not counted, and its return is dispatched. */
        me->frame = UINTPTR_MAX;
        me->guard = THREAD_INSIDE;
        kernel_calls_arm(me);
        if (kernel_calls_owns_signal() && !me->yielded)
            cpu_timer_arm(me);
        perf_events_arm(me);
    }
    if (has_key)
        pthread_setspecific(key, me);
    me->guard = me->counts != NULL ? THREAD_OUTSIDE : THREAD_ENDED;
    errno = error;
    return me->counts != NULL;
}

static void on_own_stack(void *given)
{
    struct beginning *beginning = given;
    beginning->begun = begin_on_own_stack(beginning->me, beginning->announced);
}

/* Begins a thread. If the probe is off or not ready, returns false and leaves the guard at
 * THREAD_UNKNOWN. If the file has no room for the thread, returns false and sets the guard to
 * THREAD_ENDED. */
static bool begin(struct thread_state *me, bool announced)
{
    struct beginning beginning = {.me = me, .announced = announced};
    if (session_is_off())
        return false;
    own_stack_call(on_own_stack, &beginning);
    return beginning.begun;
}

void thread_begin_announced(void)
{
    if (thread_state.guard == THREAD_UNKNOWN)
        (void)begin(&thread_state, true);
}

void thread_begin_early(void)
{
    if (thread_state.guard == THREAD_UNKNOWN)
        (void)begin(&thread_state, false);
}

/* Counts an operation of a thread that has ended, or for which the file had no room. */
static void count_late(enum profile_function function, uintptr_t given)
{
    if (profile_kind(function) == PROFILE_KIND_RELEASE && given == 0)
        function = PROFILE_FREE_NULL;
    session_add(&session.head->late_calls[function], 1);
    if (function < PROFILE_ALLOCATING)
        session_add(&session.head->late_bytes[function], given);
}

bool thread_enter_slowly(struct thread_state *me, uintptr_t frame, enum profile_function function,
                         uintptr_t given)
{
    switch (me->guard) {
    case THREAD_INSIDE:
        /* The stack grows down. So a frame at or below that of the operation belongs to a function
         * that the operation called: the allocator or a signal handler called us. */
        if (frame <= me->frame)
            return false;
        thread_is_idle(me);
        return true;
    case THREAD_UNKNOWN:
        if (begin(me, false))
            return true;
        if (me->guard != THREAD_ENDED)
            return false;
        __attribute__((fallthrough));
    case THREAD_ENDED:
        /* A frame above that of the operation means that a jump has left the operation. */
        if (me->late == 0 || frame > me->frame) {
            count_late(function, given);
            me->frame = frame;
            me->late = 0;
        }
        if (me->late < UINT8_MAX)
            me->late++;
        return false;
    default:
        return false;
    }
}

void thread_leaves(void)
{
    thread_state.inspecting = false;
    thread_state.late = 0;
    if (thread_state.guard != THREAD_INSIDE || thread_state.counts == NULL || session.head == NULL)
        return;
    thread_is_idle(&thread_state);
    thread_state.guard = THREAD_OUTSIDE;
}

void thread_throws(uintptr_t frame)
{
    struct thread_state *me = &thread_state;
    if (me->guard != THREAD_INSIDE || me->counts == NULL || session.head == NULL)
        return;
    bool is_new = me->function == PROFILE_NEW || me->function == PROFILE_NEW_ARRAY;
    /* If this frame is above that of the operation, a jump has already left the operation. */
    if (is_new && frame <= me->frame)
        session_add(&session.head->failed[me->function], 1);
    thread_leaves();
}

/* --- end -------------------------------------------------------------------------------------- */

void thread_ends(void)
{
    kernel_calls_unblock(&thread_state);
}

/* Ends a thread: its later operations are counted as late. */
static void end(struct thread_state *me)
{
    /* A signal handler may have forked, and this child could make no file. */
    if (session.head == NULL) {
        me->guard = THREAD_UNKNOWN;
        return;
    }
    cpu_timer_disarm(me);
    perf_events_disarm(me);
    line_watch_thread_ends(me);
    bool disarmed = kernel_calls_disarm(me);
    if (disarmed)
        own_stack_disarm(me);
    /* If a sandbox refused to disarm the thread, the kernel goes on reading the guard, and
     * THREAD_ENDED would kill the thread. */
    me->guard = disarmed ? THREAD_ENDED : THREAD_INSIDE;
    me->frame = UINTPTR_MAX; /* the reason is in begin_on_own_stack() */
    me->late = 0;
    session_thread_end(me->counts);
    me->counts = &unread_counts;
    if (disarmed)
        live_thread_end(me);
    else
        me->guard = THREAD_OUTSIDE;
}

/* The destructor of the probe's key. Destructors of the program's keys may allocate in every round.
 * So this destructor registers itself again until the last round, and ends the thread there.
 * begin_on_own_stack() explains an exception. Later system calls must not be dispatched: libc frees
 * the thread's own memory with every signal blocked, and a dispatched call would then kill the
 * process. */
static void on_thread_end(void *argument)
{
    struct thread_state *me = argument;
    if (me->guard == THREAD_UNKNOWN) /* the thread has not begun since a fork */
        return;
    if (++me->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(key, me);
        return;
    }
    end(me);
}

/* The struct of the thread stays its own, because the thread lives on. The thread does not give it
 * back at its end either, because that would read the clock. */
struct profile_thread *thread_suspend(void)
{
    struct thread_state *me = &thread_state;
    struct profile_thread *counts = me->counts;
    if (me->guard != THREAD_OUTSIDE || me->armed) /* as in end() */
        return NULL;
    me->late = 0;
    me->guard = THREAD_ENDED;
    me->counts = &unread_counts;
    return counts;
}

/* A signal handler may have forked since the thread was suspended, and this thread may be the
 * child's. It then has another guard. */
void thread_resume(struct profile_thread *counts)
{
    struct thread_state *me = &thread_state;
    if (counts == NULL || me->guard != THREAD_ENDED)
        return;
    me->counts = counts;
    me->guard = THREAD_OUTSIDE;
}

void thread_end_process(int exit_code)
{
    uint8_t guard = thread_state.guard;
    if (session.head == NULL || guard == THREAD_UNKNOWN || guard == THREAD_BEGINNING ||
        (guard == THREAD_ENDED && direct_forbidden))
        return;
    /* A child of vfork shares its memory and the file with its parent. It must not end the file. */
    if (direct_permits_getpid && direct_call0(SYS_getpid) != session.head->process)
        return;
    /* A handler that allocated here would wait forever for a lock that its own thread holds. */
    uint64_t blocked = signals_block_handlers();
    if (guard == THREAD_OUTSIDE) {
        thread_state.frame = UINTPTR_MAX; /* the reason is in begin_on_own_stack() */
        thread_state.guard = THREAD_INSIDE;
    }
    layout_end();
    call_stacks_end();
    session_end(exit_code, live_now());
    thread_state.guard = guard;
    signals_unblock(blocked);
}

/* --- fork ------------------------------------------------------------------------------------- */

/* Runs in the child of a fork. Detaches the process from the parent's file and sets the guard back
 * to THREAD_UNKNOWN. */
static void begin_anew(struct thread_state *me)
{
    session_forked();
    layout_forked();
    call_stacks_forked();
    watched_forked();
    own_stack_forked();
    live_forked(me);
    me->armed = false;
    me->yielded = false;
    me->has_timer = false;
    me->layout_entry = NULL; /* it is in the parent's file */
    me->layout_lost = 0;
    perf_events_disarm(me);      /* the descriptors count events of the parent */
    me->counts = &unread_counts; /* an unfinished operation may still count */
    me->guard = THREAD_UNKNOWN;
    if (fork_mark != NULL)
        *fork_mark = 1;
}

/* pthread_atfork() calls these in the parent. Between them, fork() holds all locks of the
 * allocator, although the thread is in no operation. */
static void before_fork(void)
{
    thread_state.forking = true;
}

static void after_fork(void)
{
    thread_state.forking = false;
}

/* pthread_atfork() calls this in the child. If a signal handler interrupted an operation and
 * forked, the operation goes on in the child and is counted when it ends. So the thread begins
 * immediately, in the child's own file. */
static void on_fork(void)
{
    struct thread_state *me = &thread_state;
    bool goes_on = me->guard == THREAD_INSIDE || (me->special & THREAD_UNSEEN) != 0;
    me->forking = false;
    begin_anew(me);
    perf_events_forked();
    if (goes_on)
        (void)begin(me, false);
}

bool thread_was_forked(struct thread_state *me)
{
    if (fork_mark == NULL || *fork_mark != 0)
        return false;
    begin_anew(me);
    return true;
}
