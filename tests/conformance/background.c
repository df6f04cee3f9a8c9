/* background.c - background [alone]: frees 64 MiB of blocks and sleeps for two seconds. A forked
 * child then does the same. Each of the two processes prints its number of threads, and its
 * resident KB before and after the sleep. The child also prints its number of threads right after
 * the fork. With "alone" the kernel refuses to make threads. */
#include "conformance.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { BLOCK = 1000, BLOCKS = 64 * 1024 };

/* Makes the kernel refuse new threads, but not new processes: glibc calls clone3 to make a thread,
 * and clone to fork. */
static void refuse(const char *what)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {COUNT(code), code};
    if (strcmp(what, "alone") == 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
                                       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)) {
        puts("not allowed");
        exit(0);
    }
}

static void burst(void)
{
    static char *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(BLOCK), 1, BLOCK);
    for (size_t i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    long before = status_kb("VmRSS:");
    sleep(2);
    printf("%ld %ld %ld\n", status_kb("Threads:"), before, status_kb("VmRSS:"));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    refuse(argc > 1 ? argv[1] : "");
    burst();
    pid_t child = fork();
    if (child == 0) {
        printf("%ld\n", status_kb("Threads:"));
        burst();
        return 0;
    }
    int status;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
