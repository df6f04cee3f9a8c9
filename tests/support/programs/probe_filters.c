/* probe_filters.c - installs filters of system calls that do not permit rt_sigreturn. A program
 * without signal handlers needs no such call. Any other forbidden call kills the process. Prints
 * "went on" at the end. The argument selects the case:
 *
 *     runs        installs the filter and computes for several ticks of the scheduler
 *     allocates   installs the filter and makes an allocation for which malloc calls the kernel
 *     twice       the same behind another filter, which permits everything
 *     refused     asks for a filter at a wrong address, which the kernel refuses, and allocates
 *     keeps       installs the filter, and keeps 10,000 blocks for several ticks of the scheduler
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int install(struct sock_fprog *program)
{
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) != 0;
}

static int install_all_permitting(void)
{
    struct sock_filter permit = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    return install(&(struct sock_fprog){.len = 1, .filter = &permit});
}

static int install_narrow(void)
{
    static const unsigned permitted[] = {SYS_write,  SYS_brk,   SYS_mmap,      SYS_munmap,
                                         SYS_mremap, SYS_futex, SYS_exit_group};
    enum { PERMITTED = sizeof permitted / sizeof permitted[0] };
    struct sock_filter filter[2 * PERMITTED + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    for (int i = 0; i < PERMITTED; i++) {
        filter[1 + 2 * i] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, permitted[i], 0, 1);
        filter[2 + 2 * i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[2 * PERMITTED + 1] =
        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    return install(&(struct sock_fprog){.len = 2 * PERMITTED + 2, .filter = filter});
}

static void allocate(void)
{
    for (int i = 0; i < 10; i++) {
        char *volatile block = malloc(1 << 20);
        block[0] = 1;
        free(block);
    }
}

static void compute(void)
{
    for (volatile long i = 0; i < 30000000; i++)
        continue;
}

static void keep(void)
{
    static void *volatile kept[5000];
    for (int i = 0; i < 5000; i++)
        kept[i] = malloc(100);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    void *volatile first = malloc(100);
    free(first);
    if (strcmp(what, "refused") == 0) {
        if (install(NULL) == 0 || errno != EFAULT)
            return 2;
    } else if ((strcmp(what, "twice") == 0 && install_all_permitting()) || install_narrow()) {
        return 2;
    }
    if (strcmp(what, "runs") == 0)
        compute();
    else if (strcmp(what, "keeps") == 0) {
        keep();
        compute();
        keep();
    } else
        allocate();
    (void)!write(STDOUT_FILENO, "went on\n", 8);
    return 0;
}
