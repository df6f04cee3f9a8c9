/* sandbox.c - notices that a process forbids itself system calls, by seccomp(2).
 *
 * A filter may kill the process for a system call that the program itself never makes. So before a
 * filter is installed, the probe begins the calling thread and makes room in its file for later
 * threads. From then on it makes no system calls for itself, except in locks (direct_forbidden). It
 * still makes those of the allocator. A filter that the program installs without libc is not
 * noticed.
 */
#include "probe/direct_syscall.h"
#include "probe/next.h"
#include "probe/session.h"
#include "probe/thread.h"

#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/prctl.h>

#define INTERPOSED __attribute__((visibility("default")))

/* Called before a filter of system calls (seccomp(2)) is installed. In strict mode a thread may not
 * even read the processor's clock. Returns the former value of direct_forbidden. */
static bool forbid(bool strict)
{
    bool before = direct_forbidden;
    thread_begin_early();
    session_make_room();
    if (strict)
        thread_end_early();
    direct_forbidden = true;
    return before;
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
    bool filters = option == PR_SET_SECCOMP;
    bool before = filters && forbid(values[0] == SECCOMP_MODE_STRICT);
    int result = NEXT_ALONE(prctl)(option, values[0], values[1], values[2], values[3]);
    if (filters && result != 0)
        direct_forbidden = before;
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
    bool before = forbid(strict);
    long result = real(number, a, b, c, d, e, f);
    /* A positive result is the descriptor of a listener, if the program asked for one. Otherwise it
     * is the number of a thread that cannot get the filter, and no filter was installed. */
    if (result < 0 || (result > 0 && ((unsigned long)b & SECCOMP_FILTER_FLAG_NEW_LISTENER) == 0))
        direct_forbidden = before;
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
