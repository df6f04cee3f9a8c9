/* probe_shared_filter.c - installs a filter of system calls for all threads, while others wait for
 * a lock of the allocator:
 *
 *     probe_shared_filter BYTES
 *
 * Two threads allocate blocks of BYTES bytes. The allocator holds a mutex meanwhile, so one of them
 * always waits. The filter permits what such a thread needs. Any other system call kills the
 * process. Prints "went on" when both threads have allocated again.
 */
#define _GNU_SOURCE 1
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static size_t bytes;
static _Atomic unsigned allocated[2];

static void *allocate(void *number)
{
    for (;;) {
        void *volatile block = malloc(bytes);
        free(block);
        allocated[(size_t)number]++;
    }
    return NULL;
}

/* Waits until both threads have allocated `more` blocks more. Makes no system call. */
static void wait_for(unsigned more)
{
    unsigned first = allocated[0] + more, second = allocated[1] + more;
    while (allocated[0] < first || allocated[1] < second)
        continue;
}

static int install(void)
{
    static const unsigned permitted[] = {SYS_write, SYS_futex, SYS_rt_sigreturn, SYS_exit_group};
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
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
    for (size_t i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, allocate, (void *)i) != 0)
            return 2;
    wait_for(3);
    if (install() != 0)
        return 2;
    wait_for(3);
    (void)!write(STDOUT_FILENO, "went on\n", 8);
    _exit(0);
}
