#include "probe/cpu_timer.h"

#include "base/clock.h"
#include "probe/canary.h"
#include "probe/session.h"
#include "probe/stub.h"

#include <signal.h>
#include <string.h>

char cpu_timer_mark;

enum {
    INTERVAL_NS = 500 * 1000, /* shorter than any tick, so that a tick always finds it due */
    FIRST_NS = 1,         /* so that a thread of less than a tick is met as often as is its due */
    AWAY_NS = 100 * 1000, /* off the processor for so long: somebody else was on it */
};

/* Past libc: its clocks may call the kernel, which would be the allocator's call if the thread is inside. */
static uint64_t now_ns(clockid_t clock)
{
    struct timespec now = {.tv_sec = 0};
    stub_call3(SYS_clock_gettime, clock, (long)&now, 0);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void cpu_timer_arm(struct self *me)
{
    struct sigevent event;
    struct itimerspec when = {.it_value = {.tv_nsec = FIRST_NS},
                              .it_interval = {.tv_nsec = INTERVAL_NS}};
    me->has_timer = false;
    if (!session.timers)
        return;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGSYS;
    event.sigev_value.sival_ptr = &cpu_timer_mark;
    event._sigev_un._tid = (pid_t)stub_call0(SYS_gettid);
    long made =
        stub_call3(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, (long)&event, (long)&me->timer);
    if (stub_failed(made)) { /* more of them than RLIMIT_SIGPENDING allows, mostly */
        session.head->timer_errno = (uint32_t)-made;
        session_add(&session.head->timers_refused, 1);
        return;
    }
    me->has_timer = true;
    me->timer_cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    me->timer_ns = now_ns(CLOCK_MONOTONIC);
    session.head->timer_ns = INTERVAL_NS;
    stub_call(SYS_timer_settime, me->timer, 0, (long)&when, 0, 0, 0);
}

void cpu_timer_disarm(struct self *me)
{
    if (me->has_timer)
        stub_call3(SYS_timer_delete, me->timer, 0, 0);
    me->has_timer = false;
}

/* The kernel takes the canary's note away for a signal as for a switch. An operation of some milliseconds meets a tick
 * for certain, and must not for that be taken for one that lost its processor: the note is put back, unless the thread
 * was off its processor since the last tick, which may have been within the operation. */
static void keep_canary(struct self *me)
{
    uint64_t cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    uint64_t ns = now_ns(CLOCK_MONOTONIC);
    bool stayed = ns - me->timer_ns < cpu_ns - me->timer_cpu_ns + AWAY_NS;
    me->timer_cpu_ns = cpu_ns;
    me->timer_ns = ns;
    if (stayed && (me->special & SELF_TIMED) != 0)
        canary_set();
}

/* The linker's: where this library begins, and where its instructions end. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));

void cpu_timer_told(struct self *me, uintptr_t instruction, uintptr_t stack)
{
    if (me->counts == NULL || !me->has_timer) /* in a child that has not begun, or on the way out */
        return;
    bool ours = instruction - (uintptr_t)__ehdr_start < (uintptr_t)etext - (uintptr_t)__ehdr_start;
    bool inside = me->guard == SELF_INSIDE && stack <= me->frame; /* not left by a jump */
    me->counts->cpu_samples++;
    if (inside && (!ours || me->calling))
        me->counts->cpu_samples_inside[me->kind]++;
    else if (ours)
        me->counts->cpu_samples_probe++;
    keep_canary(me);
}
