#include "probe/stub.h"

#if defined(__x86_64__)

/* The kernel checks that the address after the `syscall` instruction lies between stub_begin and
 * stub_end. So each `syscall` is followed by another instruction before stub_end. */
__asm__(".pushsection .text\n"
        ".globl stub_begin, stub_end, stub_call, stub_restorer, stub_return_from_signal\n"
        ".hidden stub_begin, stub_end, stub_call, stub_restorer, stub_return_from_signal\n"
        ".balign 64\n"
        "stub_begin:\n"
        ".type stub_call, @function\n"
        "stub_call:\n"
        ".cfi_startproc\n"
        "  mov %rdi, %rax\n"
        "  mov %rsi, %rdi\n"
        "  mov %rdx, %rsi\n"
        "  mov %rcx, %rdx\n"
        "  mov %r8, %r10\n"
        "  mov %r9, %r8\n"
        "  mov 8(%rsp), %r9\n"
        "  syscall\n"
        "  ret\n"
        ".cfi_endproc\n"
        ".size stub_call, . - stub_call\n"
        ".type stub_return_from_signal, @function\n"
        "stub_return_from_signal:\n"
        "  mov %rdi, %rsp\n"
        "  mov $15, %eax\n"
        "  syscall\n"
        "  ud2\n"
        "  nop\n" /* unwinders look at the byte before stub_restorer */
        ".type stub_restorer, @function\n"
        "stub_restorer:\n"
        "  mov $15, %rax\n"
        "  syscall\n"
        "  ud2\n"
        ".balign 64\n"
        "stub_end:\n"
        ".popsection\n");

#else

#include <errno.h>
#include <unistd.h>

long stub_call(long number, long a, long b, long c, long d, long e, long f)
{
    int error = errno;
    long result = syscall(number, a, b, c, d, e, f);
    if (result == -1)
        result = -errno;
    errno = error;
    return result;
}

#endif
