/* sandbox.c - notices that a process forbids itself system calls, by seccomp(2), or dispatches its
 * own, by prctl(2).
 *
 * A filter may kill the process for a system call that the program itself never makes. So before a
 * filter is installed, the probe begins the calling thread and makes room in its file for later
 * threads. From then on it makes no system calls for itself, with the exceptions that
 * direct_syscall.h names at direct_forbidden. It still makes those of the allocator. A filter that
 * the program installs without libc is not noticed.
 *
 * The signals of the thread's timer and of dispatched calls end with the system call rt_sigreturn.
 * If a filter does not permit it, the calling thread has no timer from then on, and its system
 * calls are not dispatched. Other threads keep both. If such a filter applies to them, too
 * (SECCOMP_FILTER_FLAG_TSYNC), the next signal of such a thread kills the process.
 */
#include "probe/cpu_timer.h"
#include "probe/direct_syscall.h"
#include "probe/kernel_calls.h"
#include "probe/next.h"
#include "probe/seccomp_filter.h"
#include "probe/session.h"
#include "probe/thread.h"

#include <linux/audit.h>
#include <stdarg.h>
#include <sys/prctl.h>

#define INTERPOSED __attribute__((visibility("default")))

/* State of the calling thread before a filter was installed. */
struct before {
    bool forbidden;                /* direct_forbidden */
    bool paused;                   /* signals were turned off for this filter or strict mode */
    bool may_turn_off;             /* see below */
    bool permits_getpid;           /* direct_permits_getpid */
    bool permits_unblocking;       /* direct_permits_unblocking */
    struct profile_thread *counts; /* from thread_suspend(), for strict mode */
};

/* True if all filters so far permit the calls that turn off the thread's signals. */
static bool may_turn_off = true;

#if defined(__aarch64__)
enum { OUR_ARCH = (int)AUDIT_ARCH_AARCH64 };
#else
enum { OUR_ARCH = (int)AUDIT_ARCH_X86_64 };
#endif

static bool permits(const struct sock_fprog *filter, int number)
{
    struct seccomp_data data = {.nr = number, .arch = (uint32_t)OUR_ARCH};
    if (number == SYS_prctl)
        data.args[0] = KERNEL_CALLS_DISPATCH;
    return seccomp_filter_permits(filter, &data);
}

/* Called before a filter of system calls (seccomp(2)) is installed. In strict mode a thread may not
 * even read the processor's clock, and `filter` has no meaning. */
static struct before forbid(bool strict, bool of_all, const struct sock_fprog *filter)
{
    struct thread_state *me = &thread_state;
    struct before before = {.forbidden = direct_forbidden,
                            .may_turn_off = may_turn_off,
                            .permits_getpid = direct_permits_getpid,
                            .permits_unblocking = direct_permits_unblocking};
    thread_begin_early();
    session_make_room();
    if ((me->armed || me->has_timer) && may_turn_off) {
        before.paused = strict || !permits(filter, SYS_rt_sigreturn);
        if (!strict)
            may_turn_off = permits(filter, SYS_prctl) && permits(filter, SYS_timer_delete);
        if (before.paused) {
            cpu_timer_disarm_permitted(me);
            (void)kernel_calls_disarm_permitted(me);
        }
    }
    if (strict)
        before.counts = thread_suspend();
    direct_permits_getpid &= !strict && permits(filter, SYS_getpid);
    /* Only a filter of all threads applies to a thread that has blocked its signals already. */
    direct_permits_unblocking &=
        !of_all || (permits(filter, SYS_rt_sigprocmask) && permits(filter, SYS_sigaltstack));
    direct_forbidden = true;
    return before;
}

/* Called if the kernel refused the filter or strict mode. */
static void permit(struct before before)
{
    struct thread_state *me = &thread_state;
    direct_forbidden = before.forbidden;
    may_turn_off = before.may_turn_off;
    direct_permits_getpid = before.permits_getpid;
    direct_permits_unblocking = before.permits_unblocking;
    thread_resume(before.counts);
    if (!before.paused || before.forbidden)
        return;
    kernel_calls_resume(me);
    cpu_timer_arm(me);
}

typedef long call_kernel(long number, long a, long b, long c, long d, long e, long f);

/* Turns the program's own dispatch of system calls on or off (thread_state.yielded). The kernel has
 * one dispatch for each thread, so the probe's ends before the program's begins. So does the timer:
 * the system calls in its signal would be dispatched to the program. */
static long change_dispatch(call_kernel *real, long mode, long c, long d, long e)
{
    struct thread_state *me = &thread_state;
    bool had_timer = me->has_timer, had_yielded = me->yielded;
    bool turns_on = mode != 0; /* PR_SYS_DISPATCH_OFF */
    cpu_timer_disarm(me);
    (void)kernel_calls_pause(me);
    me->yielded |= turns_on;
    long result = real(SYS_prctl, KERNEL_CALLS_DISPATCH, mode, c, d, e, 0);
    me->yielded = result == 0 ? turns_on : had_yielded;
    if (me->yielded) {
        me->armed = false;
        kernel_calls_yielded();
        return result;
    }
    kernel_calls_resume(me);
    if (had_timer)
        cpu_timer_arm(me);
    return result;
}

/* Makes a system call that may install a filter or change the dispatch (seccomp or prctl). The
 * kernel reads only the low 32 bits of the first argument. For seccomp, the same holds for the
 * second argument. seccomp refuses strict mode if a later argument is not 0. libseccomp uses such a
 * refused call to learn whether the kernel has seccomp. */
static __attribute__((noinline)) long call_slowly(long number, long a, long b, long c, long d,
                                                  long e, long f)
{
    call_kernel *real = (call_kernel *)NEXT_ALONE(syscall);
    if (number == SYS_prctl && (int)a == KERNEL_CALLS_DISPATCH)
        return change_dispatch(real, b, c, d, e);
    bool by_prctl = number == SYS_prctl && (int)a == PR_SET_SECCOMP;
    bool strict = by_prctl ? b == SECCOMP_MODE_STRICT
                           : number == SYS_seccomp && (unsigned)a == SECCOMP_SET_MODE_STRICT &&
                                 (unsigned)b == 0 && c == 0;
    bool filters = number == SYS_seccomp && (unsigned)a == SECCOMP_SET_MODE_FILTER;
    if (!by_prctl && !filters && !strict)
        return real(number, a, b, c, d, e, f);
    bool of_all = filters && ((unsigned long)b & SECCOMP_FILTER_FLAG_TSYNC) != 0;
    struct before before = forbid(strict, of_all, (const struct sock_fprog *)c);
    long result = real(number, a, b, c, d, e, f);
    /* A positive result is the descriptor of a listener, if the program asked for one. Otherwise it
     * is the number of a thread that cannot get the filter, and no filter was installed. */
    if (result < 0 || (result > 0 && ((unsigned long)b & SECCOMP_FILTER_FLAG_NEW_LISTENER) == 0))
        permit(before);
    return result;
}

/* Like glibc, passes four arguments after `option` to the kernel, whatever the option. */
INTERPOSED int prctl(int option, ...)
{
    va_list rest;
    unsigned long values[4];
    va_start(rest, option);
    for (size_t i = 0; i < COUNT_OF(values); i++)
        values[i] = va_arg(rest, unsigned long);
    va_end(rest);
    if (option != PR_SET_SECCOMP && option != KERNEL_CALLS_DISPATCH)
        return NEXT_ALONE(prctl)(option, values[0], values[1], values[2], values[3]);
    return (int)call_slowly(SYS_prctl, option, (long)values[0], (long)values[1], (long)values[2],
                            (long)values[3], 0);
}

/* libc's syscall() takes the number and six arguments. A vfork returns twice, the first time in the
 * child, which shares the stack of its parent and may overwrite a frame of this function. So this
 * function must have no frame during the call. Compilers turn its last return into a jump. */
call_kernel probe_syscall __asm__("syscall");
INTERPOSED long probe_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    call_kernel *real = (call_kernel *)next.syscall;
    if (UNLIKELY(number == SYS_seccomp || number == SYS_prctl || real == NULL))
        return call_slowly(number, a, b, c, d, e, f);
    return real(number, a, b, c, d, e, f);
}
