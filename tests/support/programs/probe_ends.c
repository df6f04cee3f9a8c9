/* probe_ends.c - ends a process by functions of libc that do not call _exit() by its public name.
 * First it writes to a block of 8 MiB. The argument selects the end:
 *
 *     quick     quick_exit(3)
 *     daemon    daemon(), whose child allocates and returns from main
 *     vfork     a child of vfork() in a sandbox ends by _exit(). The process kills itself
 *     refused   daemon() that can make no child. The process goes on and kills itself
 */
#define _GNU_SOURCE 1
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Lets fork() fail. */
static void forbid_children(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 11 /* EAGAIN */),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0)
        exit(2);
}

int main(int argc, char **argv)
{
    enum { BYTES = 8 << 20 };
    const char *what = argc > 1 ? argv[1] : "";
    char *volatile block = malloc(BYTES);
    memset(block, 1, BYTES);
    if (strcmp(what, "quick") == 0)
        quick_exit(3);
    if (strcmp(what, "refused") == 0)
        forbid_children();
    if (strcmp(what, "vfork") == 0) {
        forbid_children();
        if (vfork() == 0)
            _exit(127);
        raise(SIGKILL);
    }
    if (daemon(1, 1) == 0) {
        free(malloc(10));
        return 0;
    }
    raise(SIGKILL);
}
