/* trapped_calls.h - lets a test act in the middle of the probe's own system calls.
 *
 * From trap_calls() on, a filter (seccomp(2)) raises SIGSYS at each system call of direct_call().
 * The handler first calls the function that the test passed, and then makes the call. System calls
 * of libc are not trapped. A filter stays until the process ends, so tests do this in a child. A
 * call that is made while SIGSYS is blocked kills the process.
 */
#ifndef CAIRN_TRAPPED_CALLS_H
#define CAIRN_TRAPPED_CALLS_H

#include "probe/direct_syscall.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

/* The exit code of a child in which the kernel refuses filters. */
enum { NO_FILTER = 77 };

/* Runs `run` in a child. Returns its exit code, or -1 if a signal ended it. The child does not call
 * _exit(), because the address sanitizer would first make a system call that a filter may forbid.
 */
static int exit_code_of(int (*run)(void))
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        int code = run();
        for (;;)
            direct_call3(SYS_exit_group, code, 0, 0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : -1;
}

/* Installs a filter by calls that the probe does not notice. */
static bool install(struct sock_fprog filter)
{
    return direct_call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0) == 0 &&
           direct_call3(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&filter) == 0;
}

#if defined(__x86_64__)

static void (*before_call)(void);

/* Makes the call by another instruction, which the filter permits. */
static void on_trapped_call(int signal, siginfo_t *info, void *given)
{
    (void)signal;
    greg_t *registers = ((ucontext_t *)given)->uc_mcontext.gregs;
    before_call();
    registers[REG_RAX] = direct_call_for_allocator(
        info->si_syscall, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
        registers[REG_R10], registers[REG_R8], registers[REG_R9]);
}

/* Returns false if the kernel refuses filters. */
static bool trap_calls(void (*before)(void))
{
    uint32_t begin = (uint32_t)(uintptr_t)direct_call;
    uint32_t end = (uint32_t)(uintptr_t)direct_return_from_signal;
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, begin, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, end, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sigaction action = {.sa_sigaction = on_trapped_call, .sa_flags = SA_SIGINFO};
    before_call = before;
    return sigaction(SIGSYS, &action, NULL) == 0 &&
           install((struct sock_fprog){sizeof rules / sizeof rules[0], rules});
}

#else

static bool trap_calls(void (*before)(void))
{
    (void)before;
    return false;
}

#endif

#endif
