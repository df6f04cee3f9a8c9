/* witness_filtered.c FORM WAY TARGET - a child forbids itself nearly all system calls, and then
 * executes TARGET. Prints the child's status.
 *
 *     FORM   how the child executes TARGET: execve, execvp, fexecve, vfork, posix_spawn,
 *            posix_spawnp
 *     WAY    how the child installs the filter (seccomp): prctl, syscall, syscall-prctl. "refused"
 *            only asks whether the kernel has filters, and installs none
 *
 * The filter kills the child for any system call that FORM does not need. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const unsigned permitted[] = {
    SYS_execve,         SYS_execveat,     SYS_exit_group, SYS_clone,  SYS_wait4,
    SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_mmap,       SYS_munmap,
#ifdef SYS_clone3
    SYS_clone3,
#endif
#ifdef SYS_vfork
    SYS_vfork,
#endif
};

enum { PERMITTED = sizeof permitted / sizeof permitted[0] };

static int install(const char *way)
{
    struct sock_filter filter[2 * PERMITTED + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    struct sock_fprog program = {2 * PERMITTED + 2, filter};
    if (strcmp(way, "refused") == 0)
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) == -1 ? 0 : 1;
    for (int i = 0; i < PERMITTED; i++) {
        filter[2 * i + 1] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, permitted[i], 0, 1);
        filter[2 * i + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[2 * PERMITTED + 1] =
        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return 1;
    if (strcmp(way, "prctl") == 0)
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
    if (strcmp(way, "syscall") == 0)
        return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
    return (int)syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

static int status_of(pid_t child)
{
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 21;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 22;
}

static int run(const char *form, char *target, int fd)
{
    char *argv[] = {target, NULL};
    pid_t child = -1;
#define IS(name) (strcmp(form, name) == 0)
    if (IS("posix_spawn"))
        return posix_spawn(&child, target, NULL, NULL, argv, environ) == 0 ? status_of(child) : 23;
    if (IS("posix_spawnp"))
        return posix_spawnp(&child, target, NULL, NULL, argv, environ) == 0 ? status_of(child) : 23;
    if (IS("vfork")) {
        child = vfork();
        if (child != 0)
            return status_of(child);
    }
    if (IS("execvp"))
        execvp(target, argv);
    else if (IS("fexecve"))
        fexecve(fd, argv, environ);
    else
        execve(target, argv, environ);
    _exit(24);
}

int main(int argc, char **argv)
{
    int status = 0, fd = open(argv[3], O_RDONLY);
    pid_t child = fork();
    if (child == 0)
        _exit(install(argv[2]) != 0 ? 20 : run(argv[1], argv[3], fd));
    waitpid(child, &status, 0);
    printf("%d\n", status);
    return argc == 0;
}
