/* stub.h - calls of the kernel that go past everything: past libc, its errno and cancellation, and past our own watch.
 *
 * The kernel tests where a call comes from (kernel_calls.h): those from between stub_begin and stub_end are let through.
 * What is here allocates nothing, takes no lock, leaves errno alone, and works in a signal handler and a vfork child.
 */
#ifndef CAIRN_PROBE_STUB_H
#define CAIRN_PROBE_STUB_H

#include "base/base.h"

#include <sys/syscall.h>

/* A refusal is -errno. */
long stub_call(long number, long a, long b, long c, long d, long e, long f);

#if defined(__x86_64__)

extern const char stub_begin[] __attribute__((visibility("hidden")));
extern const char stub_end[] __attribute__((visibility("hidden")));

/* What a signal handler of ours returns to. */
void stub_restorer(void);

/* Returns from the signal whose frame `stack` points to, as its own restorer would have. */
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

/* `bytes` of private memory that reads as zero; NULL when refused. */
static inline void *stub_map(size_t bytes)
{
    long start = stub_call(SYS_mmap, 0, (long)bytes, 3 /* read, write */,
                           0x22 /* private, anonymous */, -1, 0);
    return stub_failed(start) ? NULL : (void *)start;
}

#endif
