#include "probe/direct_syscall.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>

bool direct_forbidden;
bool direct_permits_getpid = true;
bool direct_permits_unblocking = true;

#if defined(__x86_64__)

#define CALL                                                                                       \
    ".cfi_startproc\n"                                                                             \
    "  mov %rdi, %rax\n"                                                                           \
    "  mov %rsi, %rdi\n"                                                                           \
    "  mov %rdx, %rsi\n"                                                                           \
    "  mov %rcx, %rdx\n"                                                                           \
    "  mov %r8, %r10\n"                                                                            \
    "  mov %r9, %r8\n"                                                                             \
    "  mov 8(%rsp), %r9\n"                                                                         \
    "  syscall\n"                                                                                  \
    "  ret\n"                                                                                      \
    ".cfi_endproc\n"

/* The kernel checks that the address after the `syscall` instruction lies between direct_begin and
 * direct_end. So each `syscall` is followed by another instruction before direct_end.
 *
 * The section has a name of its own, and direct_call_for_allocator() takes its first 64 bytes, so
 * that cairn/profile/cpu_samples.py finds this function in a library without symbols. */
__asm__(
    ".pushsection cairn_direct, \"ax\", @progbits\n"
    ".globl direct_begin, direct_end, direct_call, direct_restorer, direct_return_from_signal\n"
    ".hidden direct_begin, direct_end, direct_call, direct_restorer, direct_return_from_signal\n"
    ".globl direct_call_for_allocator\n"
    ".hidden direct_call_for_allocator\n"
    ".balign 64\n"
    "direct_begin:\n"
    ".type direct_call_for_allocator, @function\n"
    "direct_call_for_allocator:\n" CALL
    ".size direct_call_for_allocator, . - direct_call_for_allocator\n"
    ".balign 64\n"
    ".type direct_call, @function\n"
    "direct_call:\n" CALL ".size direct_call, . - direct_call\n"
    ".type direct_return_from_signal, @function\n"
    "direct_return_from_signal:\n"
    "  mov %rdi, %rsp\n"
    "  mov $15, %eax\n"
    "  syscall\n"
    "  ud2\n"
    "  nop\n" /* unwinders look at the byte before direct_restorer */
    ".type direct_restorer, @function\n"
    "direct_restorer:\n"
    "  mov $15, %rax\n"
    "  syscall\n"
    "  ud2\n"
    ".balign 64\n"
    "direct_end:\n"
    ".popsection\n");

#undef CALL

#else

#include <unistd.h>

long direct_call(long number, long a, long b, long c, long d, long e, long f)
{
    int error = errno;
    long result = syscall(number, a, b, c, d, e, f);
    if (result == -1)
        result = -errno;
    errno = error;
    return result;
}

#endif

long direct_try(long number, long a, long b, long c, long d, long e, long f)
{
    return direct_forbidden ? -EPERM : direct_call(number, a, b, c, d, e, f);
}

uint64_t direct_read_ns(clockid_t clock)
{
    struct timespec now = {.tv_sec = 0};
    direct_call3(SYS_clock_gettime, clock, (long)&now, 0);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t direct_now_ns(void)
{
    return direct_forbidden ? clock_now_ns() : direct_read_ns(CLOCK_MONOTONIC);
}

long direct_move_up(long fd)
{
    long high = direct_try(SYS_fcntl, fd, F_DUPFD_CLOEXEC, DIRECT_HIGH, 0, 0, 0);
    direct_try(SYS_close, fd, 0, 0, 0, 0, 0);
    return high == -EINVAL ? -EMFILE : high; /* EINVAL: the limit is below DIRECT_HIGH */
}
