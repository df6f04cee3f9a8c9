/* sandbox.c - notices that a process forbids itself system calls, by seccomp(2).
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
    bool forbidden;          /* direct_forbidden */
    bool paused;             /* signals were turned off for this filter */
    bool may_turn_off;       /* see below */
    bool permits_getpid;     /* direct_permits_getpid */
    bool permits_unblocking; /* direct_permits_unblocking */
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
    if (strict) {
        thread_end_early();
    } else if ((me->armed || me->has_timer) && may_turn_off) {
        before.paused = !permits(filter, SYS_rt_sigreturn);
        may_turn_off = permits(filter, SYS_prctl) && permits(filter, SYS_timer_delete);
        if (before.paused) {
            cpu_timer_disarm_permitted(me);
            (void)kernel_calls_disarm_permitted(me);
        }
    }
    direct_permits_getpid &= !strict && permits(filter, SYS_getpid);
    /* Only a filter of all threads applies to a thread that has blocked its signals already. */
    direct_permits_unblocking &=
        !of_all || (permits(filter, SYS_rt_sigprocmask) && permits(filter, SYS_sigaltstack));
    direct_forbidden = true;
    return before;
}

/* Called if the kernel refused the filter. */
static void permit(struct before before)
{
    struct thread_state *me = &thread_state;
    direct_forbidden = before.forbidden;
    may_turn_off = before.may_turn_off;
    direct_permits_getpid = before.permits_getpid;
    direct_permits_unblocking = before.permits_unblocking;
    if (!before.paused || before.forbidden)
        return;
    kernel_calls_resume(me);
    cpu_timer_arm(me);
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
    if (option != PR_SET_SECCOMP)
        return NEXT_ALONE(prctl)(option, values[0], values[1], values[2], values[3]);
    struct before before =
        forbid(values[0] == SECCOMP_MODE_STRICT, false, (const struct sock_fprog *)values[1]);
    int result = NEXT_ALONE(prctl)(option, values[0], values[1], values[2], values[3]);
    if (result != 0)
        permit(before);
    return result;
}

typedef long call_kernel(long number, long a, long b, long c, long d, long e, long f);

/* Makes a system call that may install a filter (seccomp or prctl). */
static __attribute__((noinline)) long call_slowly(long number, long a, long b, long c, long d,
                                                  long e, long f)
{
    call_kernel *real = (call_kernel *)NEXT_ALONE(syscall);
    bool by_prctl = number == SYS_prctl && a == PR_SET_SECCOMP;
    bool strict = by_prctl ? b == SECCOMP_MODE_STRICT : a == SECCOMP_SET_MODE_STRICT;
    bool filters = number == SYS_seccomp && a == SECCOMP_SET_MODE_FILTER;
    if (!by_prctl && !filters && !(number == SYS_seccomp && strict))
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
