#include "probe/thread.h"

#include "base/clock.h"
#include "probe/counters.h"
#include "probe/cpu_timer.h"
#include "probe/kernel_calls.h"
#include "probe/next.h"
#include "probe/stub.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>

static pthread_key_t key; /* its destructor tells when a thread ends */
static bool has_key;
static _Atomic uint32_t last_number;
static volatile uint32_t
    *fork_mark; /* on a page that the kernel wipes in a child; NULL: not to be had */

static struct profile_thread nobody; /* what is counted there nobody reads */

static void on_thread_end(void *argument);
static void on_fork(void);

/* --- between operations ----------------------------------------------------------------------- */

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

void thread_is_idle(struct self *me)
{
    enum {
        FAULTS_ONE_IN = 8,
        ALONE_ONE_IN = 4,
        COUNTED_ONE_IN = 2
    }; /* timed operations; of the rest; of the rest */
    me->special = session.exact ? SELF_EXACT : 0;
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

/* Before the first thread counts: how ends and forks are noticed. */
static void prepare(void)
{
    static bool done;
    if (done)
        return;
    done = true;
    has_key = pthread_key_create(&key, on_thread_end) == 0;
    pthread_atfork(NULL, NULL, on_fork);
    void *page = stub_map(4096);
    if (page != NULL &&
        !stub_failed(stub_call3(SYS_madvise, (long)page, 4096, 18 /* MADV_WIPEONFORK */))) {
        fork_mark = page;
        *fork_mark = 1;
    }
}

static bool begin(struct self *me, bool announced)
{
    int error = errno;
    me->guard = SELF_BEGINNING;
    if (!next_found() || !session_on()) {
        me->guard = SELF_UNKNOWN;
        return false;
    }
    prepare();
    if (session.head->dispatch == 0) {
        kernel_calls_begin(me);
        counters_begin();
    }
    if (session.exact && !watched_maybe(NULL))
        watched_look_at_all();
    if (me->number == 0) /* else it began before the fork, and has blocks of that time */
        me->number = atomic_fetch_add(&last_number, 1) + 1;
    me->random = random_of(clock_now_ns() ^ ((uint64_t)me->number << 48));
    me->until_timed = 1 + (uint32_t)random_below(&me->random, 2 * (uint64_t)session.gap - 1);
    thread_is_idle(me);
    me->rounds = 0;
    me->counts = session_thread_begin(announced);
    if (me->counts != NULL) {
        me->frame =
            UINTPTR_MAX; /* a handler that runs from here on returns by a dispatched call, and what it allocates is */
        me->guard = SELF_INSIDE; /* not counted */
        kernel_calls_arm(me);
        if (kernel_calls_owns_signal())
            cpu_timer_arm(me);
        counters_arm(me);
    }
    if (has_key)
        pthread_setspecific(key, me);
    me->guard = me->counts != NULL ? SELF_OUTSIDE : SELF_ENDED;
    errno = error;
    return me->counts != NULL;
}

void thread_begin_announced(void)
{
    if (self.guard == SELF_UNKNOWN)
        (void)begin(&self, true);
}

/* By a thread that is ending, or for which there was no room. */
static void count_late(enum profile_function function, size_t bytes)
{
    session_add(&session.head->late_calls[function], 1);
    if (function < PROFILE_ALLOCATING)
        session_add(&session.head->late_bytes[function], bytes);
}

bool thread_enter_slowly(struct self *me, uintptr_t frame, enum profile_function function,
                         size_t bytes)
{
    switch (me->guard) {
    case SELF_INSIDE:
        if (frame <= me->frame) /* called by the allocator, or by a signal's handler meanwhile */
            return false;
        thread_is_idle(me);
        return true;
    case SELF_UNKNOWN:
        return begin(me, false);
    case SELF_ENDED:
        count_late(function, bytes);
        return false;
    default:
        return false;
    }
}

void thread_leaves(void)
{
    if (self.guard != SELF_INSIDE || self.counts == NULL || session.head == NULL)
        return;
    thread_is_idle(&self);
    self.guard = SELF_OUTSIDE;
}

/* --- end -------------------------------------------------------------------------------------- */

void thread_ends(void)
{
    kernel_calls_unblock(&self);
}

/* The destructors of others may allocate, round after round; what comes after the last one does not need us any more:
 * libc frees the thread's own memory with every signal blocked, where a dispatched call would be the end. */
static void on_thread_end(void *argument)
{
    struct self *me = argument;
    if (me->guard == SELF_UNKNOWN) /* since a fork */
        return;
    if (++me->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(key, me);
        return;
    }
    cpu_timer_disarm(me);
    counters_disarm(me);
    bool disarmed = kernel_calls_disarm(me);
    me->guard = disarmed ? SELF_ENDED : SELF_INSIDE; /* the kernel goes on reading it */
    session_thread_end(me->counts);
    me->counts = &nobody;
    if (!disarmed)
        me->guard = SELF_OUTSIDE;
}

void thread_end_process(int exit_code)
{
    uint8_t guard = self.guard;
    if (guard == SELF_UNKNOWN || guard == SELF_BEGINNING)
        return;
    if (stub_call0(SYS_getpid) !=
        session.head->process) /* a child of vfork: what it has is its parent's */
        return;
    if (guard == SELF_OUTSIDE)
        self.guard = SELF_INSIDE;
    session_end(exit_code, watched_live());
    self.guard = guard;
}

/* --- fork ------------------------------------------------------------------------------------- */

static void begin_anew(struct self *me)
{
    session_forked();
    watched_forked();
    me->armed = false;
    me->has_timer = false;
    counters_disarm(me);  /* they count the parent */
    me->counts = &nobody; /* an operation that goes on may still count */
    me->guard = SELF_UNKNOWN;
    if (fork_mark != NULL)
        *fork_mark = 1;
}

/* An operation that a signal's handler interrupted to fork goes on in the child, and counts when it ends. */
static void on_fork(void)
{
    struct self *me = &self;
    bool goes_on = me->guard == SELF_INSIDE || (me->special & SELF_UNSEEN) != 0;
    begin_anew(me);
    if (goes_on)
        (void)begin(me, false);
}

bool thread_was_forked(struct self *me)
{
    if (fork_mark == NULL || *fork_mark != 0)
        return false;
    begin_anew(me);
    return true;
}
