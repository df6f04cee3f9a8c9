/* direct_syscall.h - system calls for the probe itself. They bypass libc and the probe's dispatch.
 *
 * The kernel does not dispatch a call whose instruction lies between direct_begin and direct_end
 * (kernel_calls.h). The functions here allocate nothing and take no lock. They are not cancellation
 * points and do not change errno. They work in a signal handler and in a child of vfork.
 */
#ifndef CAIRN_PROBE_DIRECT_SYSCALL_H
#define CAIRN_PROBE_DIRECT_SYSCALL_H

#include "base/base.h"

#include <sys/syscall.h>
#include <time.h>

/* True if the process may be killed for system calls that it did not make itself: it has installed,
 * or is about to install, a filter (seccomp(2)). From then on the probe makes no calls for itself,
 * with four exceptions: locks wait and wake; getpid, if direct_permits_getpid; the calls by which a
 * thread unblocks its signals and gets its alternate signal stack back, if
 * direct_permits_unblocking; and the calls that turn off the signals of the calling thread, if all
 * filters permit these. sandbox.c sets this variable. Another thread may do so at any time. */
extern bool direct_forbidden __attribute__((visibility("hidden")));

/* False if a filter of the process does not permit getpid. sandbox.c sets this variable. */
extern bool direct_permits_getpid __attribute__((visibility("hidden")));

/* False if a filter was installed for all threads at once, and does not permit rt_sigprocmask or
 * sigaltstack. A filter of one thread applies to no thread that has blocked its signals already.
 * sandbox.c sets this variable. */
extern bool direct_permits_unblocking __attribute__((visibility("hidden")));

/* Makes a system call and returns its result. If the call fails, the result is -errno. */
long direct_call(long number, long a, long b, long c, long d, long e, long f);

/* The same as direct_call(), but makes no call and returns -EPERM if direct_forbidden is true. Work
 * that takes long makes each of its calls by this function, because another thread may install a
 * filter meanwhile. */
long direct_try(long number, long a, long b, long c, long d, long e, long f);

#if defined(__x86_64__)

/* The same as direct_call(). The probe makes a dispatched call of the allocator by this function.
 * So a clock sample in the kernel shows by its address whose call it is. */
long direct_call_for_allocator(long number, long a, long b, long c, long d, long e, long f);

extern const char direct_begin[] __attribute__((visibility("hidden")));
extern const char direct_end[] __attribute__((visibility("hidden")));

/* The probe's signal handler returns to this function. The function ends the signal by a system
 * call that is not dispatched. */
void direct_restorer(void);

/* Returns from the signal whose stack frame is at `stack`, as the restorer of that signal would. */
_Noreturn void direct_return_from_signal(uintptr_t stack);

#endif

/* Returns the time of a clock in nanoseconds. Always makes a system call of the probe, even if
 * direct_forbidden is true. So the caller checks this variable first. */
uint64_t direct_read_ns(clockid_t clock);

/* The same as clock_now_ns(). libc's function makes a system call where the kernel offers no other
 * clock, as on a machine with an unstable time-stamp counter. In an operation that call would count
 * as one of the allocator. */
uint64_t direct_now_ns(void);

/* The lowest number of a descriptor that direct_move_up() returns. Programs seldom have files of
 * their own there. */
enum { DIRECT_HIGH = 700 };

/* Moves a descriptor to a number of DIRECT_HIGH or more. If no such number is free, closes the
 * descriptor and returns -EMFILE, because the program needs the lower numbers. */
long direct_move_up(long fd);

static inline long direct_call0(long number)
{
    return direct_call(number, 0, 0, 0, 0, 0, 0);
}

static inline long direct_call3(long number, long a, long b, long c)
{
    return direct_call(number, a, b, c, 0, 0, 0);
}

static inline bool direct_failed(long result)
{
    return (unsigned long)result > -4096UL;
}

/* Maps `bytes` of private memory filled with zeroes. Returns NULL if the kernel refuses, or if
 * direct_forbidden is true. */
static inline void *direct_map(size_t bytes)
{
    if (UNLIKELY(direct_forbidden))
        return NULL;
    long start = direct_call(SYS_mmap, 0, (long)bytes, 3 /* read, write */,
                             0x22 /* private, anonymous */, -1, 0);
    return direct_failed(start) ? NULL : (void *)start;
}

#endif
