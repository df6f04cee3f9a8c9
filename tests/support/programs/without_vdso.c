/* without_vdso.c PROGRAM [ARGUMENT...] - executes a program that does not find the vdso. So libc
 * reads the clock by a system call, as on a machine whose time-stamp counter is unstable. */
#define _GNU_SOURCE 1
#include <elf.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static long word_at(pid_t child, unsigned long place)
{
    return ptrace(PTRACE_PEEKDATA, child, place, NULL);
}

/* Hides the vdso's entry in the child's auxiliary vector, which lies behind the arguments and the
 * environment. */
static void hide(pid_t child)
{
    struct user_regs_struct registers;
    ptrace(PTRACE_GETREGS, child, NULL, &registers);
    unsigned long place = registers.rsp;
    place += sizeof(long) * ((unsigned long)word_at(child, place) + 2);
    while (word_at(child, place) != 0)
        place += sizeof(long);
    for (place += sizeof(long); word_at(child, place) != AT_NULL; place += 2 * sizeof(long))
        if (word_at(child, place) == AT_SYSINFO_EHDR)
            ptrace(PTRACE_POKEDATA, child, place, AT_IGNORE);
}

int main(int argc, char **argv)
{
    int status;
    pid_t child = argc > 1 ? fork() : -1;
    if (child < 0)
        return 2;
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execv(argv[1], argv + 1);
        _exit(127);
    }
    waitpid(child, &status, 0);
    hide(child);
    ptrace(PTRACE_DETACH, child, NULL, NULL);
    waitpid(child, &status, 0);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}
