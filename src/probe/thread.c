#include "probe/thread.h"

#include "base/clock.h"
#include "probe/kernel_calls.h"
#include "probe/next.h"
#include "probe/session.h"
#include "probe/stub.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>

static pthread_key_t key; /* its destructor tells when a thread ends */
static bool has_key;
static _Atomic uint32_t last_number;
static volatile uint32_t *fork_mark; /* on a page that the kernel wipes in a child; NULL: not to be had */

static void on_thread_end(void *argument);
static void on_fork(void);

/* --- begin -------------------------------------------------------------------------------------------------------- */

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
    if (page != NULL && !stub_failed(stub_call3(SYS_madvise, (long)page, 4096, 18 /* MADV_WIPEONFORK */))) {
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
    if (session.head->dispatch == 0)
        kernel_calls_begin(me);
    me->number = atomic_fetch_add(&last_number, 1) + 1;
    me->random = random_of(clock_now_ns() ^ ((uint64_t)me->number << 48));
    me->until_timed = 1 + (uint32_t)random_below(&me->random, 2 * (uint64_t)session.gap - 1);
    me->special = 0;
    me->section = NULL;
    me->rounds = 0;
    me->counts = session_thread_begin(announced);
    if (me->counts != NULL)
        kernel_calls_arm(me);
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

bool thread_enter_slowly(struct self *me, uintptr_t frame, enum profile_function function, size_t bytes)
{
    switch (me->guard) {
    case SELF_INSIDE:
        if (frame <= me->frame) /* called by the allocator, or by a signal's handler meanwhile */
            return false;
        me->special = 0;
        me->section = NULL;
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
    if (self.guard != SELF_INSIDE)
        return;
    self.special = 0;
    self.section = NULL;
    self.guard = SELF_OUTSIDE;
}

/* --- end ---------------------------------------------------------------------------------------------------------- */

/* The destructors of others may allocate, round after round; what comes after the last one does not need us any more:
 * libc frees the thread's own memory with every signal blocked, where a dispatched call would be the end. */
static void on_thread_end(void *argument)
{
    struct self *me = argument;
    if (++me->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(key, me);
        return;
    }
    if (me->guard == SELF_OUTSIDE)
        kernel_calls_disarm(me);
    me->guard = SELF_ENDED;
    session_thread_end(me->counts);
    me->counts = NULL;
}

void thread_end_process(int exit_code)
{
    uint8_t guard = self.guard;
    if (guard == SELF_UNKNOWN || guard == SELF_BEGINNING)
        return;
    if (stub_call0(SYS_getpid) != session.head->process) /* a child of vfork: what it has is its parent's */
        return;
    if (guard == SELF_OUTSIDE)
        self.guard = SELF_INSIDE;
    session_moment(watched_live_bytes());
    session_end(PROFILE_ENDED, exit_code);
    self.guard = guard;
}

/* --- fork --------------------------------------------------------------------------------------------------------- */

static void begin_anew(struct self *me)
{
    session_forked();
    watched_forked();
    me->armed = false;
    me->counts = NULL;
    me->guard = SELF_UNKNOWN;
    if (fork_mark != NULL)
        *fork_mark = 1;
}

static void on_fork(void)
{
    begin_anew(&self);
}

bool thread_was_forked(struct self *me)
{
    if (fork_mark == NULL || *fork_mark != 0)
        return false;
    begin_anew(me);
    return true;
}
