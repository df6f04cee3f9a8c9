#define _GNU_SOURCE 1
#include "witness/sandbox.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define INTERPOSED __attribute__((visibility("default")))

_Atomic unsigned sandbox_filters;
_Atomic unsigned sandbox_steps;

typedef long call_kernel(long number, long a, long b, long c, long d, long e, long f);

static call_kernel *real_syscall;

void sandbox_prepare(void)
{
    real_syscall = (call_kernel *)dlsym(RTLD_NEXT, "syscall");
}

/* The kernel reads only the low 32 bits of the first argument. */
static bool installs_filter(long number, long a)
{
    if (number == SYS_prctl)
        return (int)a == PR_SET_SECCOMP;
    return number == SYS_seccomp &&
           ((unsigned)a == SECCOMP_SET_MODE_STRICT || (unsigned)a == SECCOMP_SET_MODE_FILTER);
}

/* A positive result is the descriptor of a listener, if the program asked for one. Otherwise it is
 * the number of a thread that cannot get the filter, and no filter was installed. */
static bool is_refused(long result, long b)
{
    return result < 0 || (result > 0 && ((unsigned long)b & SECCOMP_FILTER_FLAG_NEW_LISTENER) == 0);
}

/* Makes a system call that may install a filter. Also makes a call of the constructor of another
 * library, which may run before our own constructor. */
static __attribute__((noinline)) long call_slowly(long number, long a, long b, long c, long d,
                                                  long e, long f)
{
    if (real_syscall == NULL) {
        int error = errno;
        sandbox_prepare();
        errno = error;
    }
    if (number == SYS_prctl && (int)a == PR_SET_NO_NEW_PRIVS)
        sandbox_steps++;
    if (!installs_filter(number, a))
        return real_syscall(number, a, b, c, d, e, f);
    sandbox_steps++;
    sandbox_filters++;
    long result = real_syscall(number, a, b, c, d, e, f);
    if (is_refused(result, b)) {
        sandbox_filters--;
        sandbox_steps--;
    }
    return result;
}

/* Like glibc, passes four arguments after `option` to the kernel, whatever the option. */
INTERPOSED int prctl(int option, ...)
{
    long values[4];
    va_list rest;
    va_start(rest, option);
    for (size_t i = 0; i < COUNT_OF(values); i++)
        values[i] = va_arg(rest, long);
    va_end(rest);
    return (int)call_slowly(SYS_prctl, option, values[0], values[1], values[2], values[3], 0);
}

/* libc's syscall() takes the number and six arguments. A vfork returns twice, the first time in the
 * child, which shares the stack of its parent and may overwrite a frame of this function. So this
 * function must end in a jump (CMakeLists.txt). */
call_kernel witness_syscall __asm__("syscall");
INTERPOSED long witness_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (UNLIKELY(number == SYS_seccomp || number == SYS_prctl || real_syscall == NULL))
        return call_slowly(number, a, b, c, d, e, f);
    return real_syscall(number, a, b, c, d, e, f);
}
