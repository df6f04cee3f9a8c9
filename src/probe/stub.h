/* stub.h - system calls for the probe itself, which bypass libc and the probe's own dispatch.
 *
 * The kernel does not dispatch a call whose instruction lies between stub_begin and stub_end
 * (kernel_calls.h). The functions here allocate nothing and take no lock. They are no cancellation
 * points and do not change errno. They work in a signal handler and in a child of vfork.
 */
#ifndef CAIRN_PROBE_STUB_H
#define CAIRN_PROBE_STUB_H

#include "base/base.h"

#include <sys/syscall.h>

/* Makes a system call and returns its result. If the call fails, the result is -errno. */
long stub_call(long number, long a, long b, long c, long d, long e, long f);

#if defined(__x86_64__)

extern const char stub_begin[] __attribute__((visibility("hidden")));
extern const char stub_end[] __attribute__((visibility("hidden")));

/* The probe's signal handler returns to this function. The function ends the signal by a system
 * call that is not dispatched. */
void stub_restorer(void);

/* Returns from the signal whose stack frame is at `stack`, as the restorer of that signal would. */
_Noreturn void stub_return_from_signal(uintptr_t stack);

#endif

static inline long stub_call0(long number)
{
    return stub_call(number, 0, 0, 0, 0, 0, 0);
}

static inline long stub_call3(long number, long a, long b, long c)
{
    return stub_call(number, a, b, c, 0, 0, 0);
}

static inline bool stub_failed(long result)
{
    return (unsigned long)result > -4096UL;
}

/* Maps `bytes` of private memory filled with zeroes. Returns NULL if the kernel refuses. */
static inline void *stub_map(size_t bytes)
{
    long start = stub_call(SYS_mmap, 0, (long)bytes, 3 /* read, write */,
                           0x22 /* private, anonymous */, -1, 0);
    return stub_failed(start) ? NULL : (void *)start;
}

#endif
