/* sandbox.c - notices that the process is in a sandbox (seccomp(2)). A sandbox may kill the process
 * for mremap() and mincore(). In a sandbox, realloc() therefore copies blocks instead of moving
 * their pages, and fewer chunks become huge pages (huge_page_density.h).
 *
 * A filter that was inherited is found in /proc/self/status. The file is read once: before the
 * first of these calls, or before the machine's setting of huge pages is read
 * (huge_page_unasked.h). The loader has opened and read files under the same filter, so reading is
 * allowed. A filter that the program installs passes through prctl() or syscall(), which this file
 * replaces. From then on, nothing is read. A filter that the program installs by a system call
 * instruction of its own is not noticed.
 *
 * Only the shared library does this. An archive cannot replace syscall(), and a static program may
 * not be allowed to open a file.
 */
#include "abi/abi.h"

#include "alloc/huge_page_unasked.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A value of linux/seccomp.h. The compiler wrapper of musl does not find this header. */
enum { SET_MODE_FILTER = 1 };

enum { UNKNOWN, OPEN, CONFINED };

static _Atomic int sandbox;

typedef int call_prctl(int option, unsigned long, unsigned long, unsigned long, unsigned long);
typedef long call_kernel(long number, long a, long b, long c, long d, long e, long f);

static call_prctl *next_prctl;
static call_kernel *next_syscall;

/* Looks up the next definitions, those of the C library. A later lookup could wait for the
 * loader's lock. */
__attribute__((noinline)) static void find_next(void)
{
    next_prctl = (call_prctl *)dlsym(RTLD_NEXT, "prctl");
    next_syscall = (call_kernel *)dlsym(RTLD_NEXT, "syscall");
}

static void confine(void)
{
    atomic_store_explicit(&sandbox, CONFINED, memory_order_relaxed);
}

EXPORT int prctl(int option, ...)
{
    va_list rest;
    unsigned long values[4];
    va_start(rest, option);
    for (size_t i = 0; i < COUNT_OF(values); i++)
        values[i] = va_arg(rest, unsigned long);
    va_end(rest);
    if (option == PR_SET_SECCOMP)
        confine();
    if (next_prctl == NULL)
        find_next();
    return next_prctl(option, values[0], values[1], values[2], values[3]);
}

/* Makes a system call that may install a filter. Also makes the first system call of the process,
 * for which the next definitions are not known yet. */
static __attribute__((noinline)) long call_slowly(long number, long a, long b, long c, long d,
                                                  long e, long f)
{
    bool by_prctl = number == SYS_prctl && a == PR_SET_SECCOMP;
    if (by_prctl || (number == SYS_seccomp && a <= SET_MODE_FILTER))
        confine();
    if (next_syscall == NULL)
        find_next();
    return next_syscall(number, a, b, c, d, e, f);
}

/* A vfork returns twice, the first time in the child, which shares the stack of its parent and may
 * overwrite a frame of this function. So this function must end in a jump (CMakeLists.txt). */
call_kernel sandbox_syscall __asm__("syscall");
EXPORT long sandbox_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (UNLIKELY(number == SYS_seccomp || number == SYS_prctl || next_syscall == NULL))
        return call_slowly(number, a, b, c, d, e, f);
    return next_syscall(number, a, b, c, d, e, f);
}

/* Returns whether /proc/self/status names a filter, or cannot be read. */
static bool is_confined(void)
{
    static const char name[] = "\nSeccomp:\t";
    char text[1024];
    size_t matched = 0;
    long got = -1;
    char mode = '0';
    long file = next_syscall(SYS_openat, AT_FDCWD, (long)"/proc/self/status", O_RDONLY | O_CLOEXEC,
                             0, 0, 0);
    while (file >= 0 && (got = next_syscall(SYS_read, file, (long)text, sizeof text, 0, 0, 0)) > 0)
        for (long i = 0; i < got; i++)
            if (matched == sizeof name - 1) {
                mode = text[i];
                matched = 0;
            } else {
                matched = text[i] == name[matched] ? matched + 1 : text[i] == '\n';
            }
    if (file >= 0)
        next_syscall(SYS_close, file, 0, 0, 0, 0, 0);
    return got < 0 || mode != '0';
}

static bool is_open(void)
{
    if (UNLIKELY(atomic_load_explicit(&sandbox, memory_order_relaxed) == UNKNOWN)) {
        int saved = errno;
        int unknown = UNKNOWN;
        bool confined = is_confined();
        atomic_compare_exchange_strong_explicit(&sandbox, &unknown, confined ? CONFINED : OPEN,
                                                memory_order_relaxed, memory_order_relaxed);
        errno = saved;
    }
    return atomic_load_explicit(&sandbox, memory_order_relaxed) == OPEN;
}

__attribute__((constructor)) static void begin(void)
{
    find_next();
    if (large_may_move == NULL)
        large_may_move = is_open;
    huge_page_may_ask = is_open;
}
