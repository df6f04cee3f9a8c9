/* probe_rights.c RIGHT CHILDREN [sweep|threads] - a parent makes 100 blocks. Each of its children
 * gives up a right and then makes PAIRS pairs of malloc and free. With "sweep" a child closes every
 * descriptor but 0 to 2 before that. With "threads" a child allocates before it gives up the right,
 * and then makes the pairs in THREADS threads that live at the same time. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAIRS = 20000, THREADS = 40, KEPT = 100, NOBODY = 65534, FAILED = 9 };

/* Permits the calls that malloc and the end of a process need. Any other call kills the process. */
static bool install_filter(bool by_prctl)
{
    static const unsigned permitted[] = {SYS_brk,   SYS_mmap,       SYS_munmap,      SYS_madvise,
                                         SYS_futex, SYS_exit_group, SYS_rt_sigreturn};
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
    struct sock_fprog program = {.len = 2 * PERMITTED + 2, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return false;
    if (by_prctl)
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

/* Lets openat() fail with EACCES. Kills the process at fallocate(), which the probe calls and libc
 * does not. */
static bool forbid_files(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 2, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

static bool give_up(const char *right)
{
    if (strcmp(right, "files") == 0)
        return forbid_files();
    if (strcmp(right, "nothing") == 0)
        return true;
    if (strcmp(right, "setuid") == 0)
        return setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0;
    if (strcmp(right, "chroot") == 0)
        return chroot("/usr") == 0 && chdir("/") == 0;
    if (strcmp(right, "nofile") == 0)
        return setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, 3}) == 0;
    if (strcmp(right, "fsize") == 0)
        return signal(SIGXFSZ, SIG_IGN) != SIG_ERR &&
               setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0}) == 0;
    if (strcmp(right, "clearenv") == 0)
        return clearenv() == 0;
    if (strcmp(right, "prctl") == 0 || strcmp(right, "seccomp") == 0)
        return install_filter(right[0] == 'p');
    if (strcmp(right, "strict") == 0)
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) == 0;
    if (strcmp(right, "proc") == 0)
        return unshare(CLONE_NEWNS) == 0 &&
               mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
               umount2("/proc", MNT_DETACH) == 0;
    return false;
}

static pthread_barrier_t together;

static void *make_pairs(void *nothing)
{
    for (int i = 0; i < PAIRS / THREADS; i++)
        free(malloc(300));
    pthread_barrier_wait(&together);
    return nothing;
}

static void be_threads(const char *right)
{
    free(malloc(1));
    if (!give_up(right))
        _exit(FAILED);
    pthread_t threads[THREADS];
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, make_pairs, NULL) != 0)
            _exit(FAILED);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    _exit(0);
}

static void be_child(const char *right, bool sweep)
{
    if (sweep && syscall(SYS_close_range, 3, ~0U, 0) != 0)
        _exit(FAILED);
    if (!give_up(right))
        _exit(FAILED);
    for (int i = 0; i < PAIRS; i++) {
        char *block = malloc(300 + i % 900);
        block[0] = 1;
        free(block);
    }
    if (strcmp(right, "strict") == 0)
        syscall(SYS_exit, 0);
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    char *kept[KEPT];
    for (int i = 0; i < KEPT; i++) {
        kept[i] = malloc(1000);
        kept[i][0] = 1;
    }
    fflush(stdout);
    int children = atoi(argv[2]);
    for (int i = 0; i < children; i++)
        if (fork() == 0) {
            if (argc > 3 && strcmp(argv[3], "threads") == 0)
                be_threads(argv[1]);
            be_child(argv[1], argc > 3);
        }
    int status, bad = 0;
    while (wait(&status) > 0)
        bad |= status;
    for (int i = 0; i < KEPT; i++)
        free(kept[i]);
    return bad != 0;
}
