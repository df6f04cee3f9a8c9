#include "probe/cpu_timer.h"

#include "base/clock.h"
#include "probe/direct_syscall.h"
#include "probe/preemption.h"
#include "probe/session.h"

#include <signal.h>
#include <string.h>

char cpu_timer_mark;

enum {
    INTERVAL_NS = 500 * 1000, /* less than a tick: the timer is due at every tick */
    FIRST_NS = 1,             /* due at the first tick: samples short threads too */
    /* A thread that was off its processor for less than this counts as having kept it. */
    AWAY_NS = 100 * 1000,
};

/* Reads a clock without libc. libc's function may make a system call. If the thread is in the
 * allocator, the probe would count this call as one that the allocator made. */
static uint64_t now_ns(clockid_t clock)
{
    struct timespec now = {.tv_sec = 0};
    direct_call3(SYS_clock_gettime, clock, (long)&now, 0);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* CPU time between two samples of a thread: the kernel looks at the timers at each tick. */
static uint64_t sample_ns(void)
{
    struct timespec tick = {.tv_sec = 0};
    direct_call3(SYS_clock_getres, CLOCK_MONOTONIC_COARSE, (long)&tick, 0);
    return tick.tv_nsec > INTERVAL_NS ? (uint64_t)tick.tv_nsec : INTERVAL_NS;
}

void cpu_timer_arm(struct thread_state *me)
{
    struct sigevent event;
    struct itimerspec when = {.it_value = {.tv_nsec = FIRST_NS},
                              .it_interval = {.tv_nsec = INTERVAL_NS}};
    me->has_timer = false;
    if (!session.timers || direct_forbidden)
        return;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGSYS;
    event.sigev_value.sival_ptr = &cpu_timer_mark;
    event._sigev_un._tid = (pid_t)direct_call0(SYS_gettid);
    long made =
        direct_call3(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, (long)&event, (long)&me->timer);
    /* The usual reason is RLIMIT_SIGPENDING, which limits the number of timers of all threads
     * together. */
    if (direct_failed(made)) {
        session.head->timer_errno = (uint32_t)-made;
        session_add(&session.head->timers_refused, 1);
        return;
    }
    me->has_timer = true;
    me->timer_cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    me->timer_ns = now_ns(CLOCK_MONOTONIC);
    session.head->timer_ns = sample_ns();
    direct_call(SYS_timer_settime, me->timer, 0, (long)&when, 0, 0, 0);
}

void cpu_timer_disarm_permitted(struct thread_state *me)
{
    if (me->has_timer)
        direct_call3(SYS_timer_delete, me->timer, 0, 0);
    me->has_timer = false;
}

void cpu_timer_disarm(struct thread_state *me)
{
    if (!direct_forbidden)
        cpu_timer_disarm_permitted(me);
    me->has_timer = false;
}

/* The signal of this timer clears the announcement of preemption.h, as a switch of threads does. An
 * operation of some milliseconds surely meets such a signal, and would wrongly count as one that
 * lost its processor. So the sequence is announced again if the thread kept its processor since the
 * last sample. Otherwise the announcement stays cleared, because the switch may have been within
 * the operation. */
static void watch_again(struct thread_state *me)
{
    uint64_t cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    uint64_t ns = now_ns(CLOCK_MONOTONIC);
    bool stayed = ns - me->timer_ns < cpu_ns - me->timer_cpu_ns + AWAY_NS;
    me->timer_cpu_ns = cpu_ns;
    me->timer_ns = ns;
    if (stayed && (me->special & THREAD_TIMED) != 0)
        preemption_watch();
}

/* Symbols of the linker: the beginning of this library and the end of its instructions. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));

void cpu_timer_told(struct thread_state *me, uintptr_t instruction, uintptr_t stack)
{
    /* The thread has not begun anew since a fork, or it is ending. */
    if (me->counts == NULL || !me->has_timer)
        return;
    bool ours = instruction - (uintptr_t)__ehdr_start < (uintptr_t)etext - (uintptr_t)__ehdr_start;
    /* A stack pointer above the frame means that a jump has left the operation. */
    bool inside = me->guard == THREAD_INSIDE && stack <= me->frame;
    me->counts->cpu_samples++;
    if (inside && !me->asking && (!ours || me->calling))
        me->counts->cpu_samples_inside[profile_kind(me->function)]++;
    else if (ours || me->asking)
        me->counts->cpu_samples_probe++;
    if (!direct_forbidden)
        watch_again(me);
}
