/* sandbox.c - confines the process by seccomp to the system calls that docs/allocator-reference.md
 * lists. Any other call ends the process. Each argument, madvise or mremap, names a listed call
 * that fails with EPERM. With the argument deadly-mremap, mremap ends the process, too. After that
 * the program grows to 80 MB, and it allocates, frees, resizes and trims, in the main thread and in
 * threads that began before the confinement. */
#include "conformance.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { THREADS = 4, HELD = 4000, HELD_BYTES = 20000 };

static pthread_barrier_t begun;
static pthread_barrier_t confined;
static pthread_barrier_t done;
static pthread_barrier_t never; /* holds threads: their end needs other calls */
static void *handed[THREADS][100];

/* Makes the process so large that the allocator requests huge pages. */
static void grow(void)
{
    static char *held[HELD];
    for (size_t i = 0; i < HELD; i++) {
        held[i] = malloc(HELD_BYTES);
        if (held[i] == NULL)
            abort();
        held[i][0] = 1;
    }
    for (size_t i = 0; i < HELD; i++)
        free(held[i]);
}

static void work(uint64_t state)
{
    for (int i = 0; i < 20000; i++) {
        size_t size = draw_below(&state, i % 50 == 0 ? 3000000 : 3000);
        char *p = i % 3 == 0 ? calloc(1, size) : malloc(size);
        p = realloc(p, size + size / 2 + 1);
        if (p == NULL)
            abort();
        *p = 1;
        free(p);
    }
    malloc_trim(0);
}

static void *run(void *argument)
{
    size_t self = (uintptr_t)argument;
    for (size_t i = 0; i < COUNT(handed[self]); i++)
        handed[self][i] = malloc(i * 50);
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&confined);
    for (size_t i = 0; i < COUNT(handed[self]); i++)
        free(handed[(self + 1) % THREADS][i]);
    work(self + 5);
    pthread_barrier_wait(&done);
    pthread_barrier_wait(&never);
    return NULL;
}

int main(int argc, char **argv)
{
    static const unsigned allowed[] = {
        SYS_mmap,  SYS_munmap, SYS_madvise,    SYS_mremap, SYS_futex, /* calls of the allocator */
        SYS_write, SYS_exit,   SYS_exit_group, /* calls of the program, to print and to end */
    };
    struct sock_filter code[2 * COUNT(allowed) + 8];
    size_t length = 0;
    code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    bool is_deadly = argc > 1 && strcmp(argv[1], "deadly-mremap") == 0;
    for (int i = 1; i < argc && !is_deadly; i++) {
        unsigned refused = strcmp(argv[i], "madvise") == 0 ? SYS_madvise : SYS_mremap;
        code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused, 0, 1);
        code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    for (size_t i = 0; i < COUNT(allowed); i++) {
        if (is_deadly && allowed[i] == SYS_mremap)
            continue;
        code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog filter = {.len = (unsigned short)length, .filter = code};

    require_cairn();
    pthread_barrier_init(&begun, NULL, THREADS + 1);
    pthread_barrier_init(&confined, NULL, THREADS + 1);
    pthread_barrier_init(&never, NULL, THREADS + 1);
    pthread_barrier_init(&done, NULL, THREADS + 1);
    pthread_t ids[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&ids[i], NULL, run, (void *)i) != 0)
            return 2;
    pthread_barrier_wait(&begun);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0) {
        puts("not allowed");
        return 0;
    }
    pthread_barrier_wait(&confined);
    grow();
    work(1);
    pthread_barrier_wait(&done);
    if (write(STDOUT_FILENO, "confined\n", 9) != 9)
        _exit(1);
    _exit(0);
}
