/* stepped.c - stepped CALL: interrupts one of the first calls of a thread at each of its
 * instructions. CALL is "malloc" or "free". Ten other threads wait, and much memory is idle. The
 * signal handler allocates a medium block, which gives the thread a heap. Afterwards the thread
 * allocates and frees blocks of many sizes. Each instruction has a process of its own. Prints the
 * number of instructions and the number of processes that did not end well. x86-64 only. */
#include "conformance.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>

enum { WAITING = 10, TRAP = 0x100, MOST = 2000, BLOCKS = 200 };

static pthread_barrier_t waiting;
static volatile long target;
static volatile long steps;
static volatile bool on;
static void *volatile kept;
static bool frees;

static void step(int number, siginfo_t *about, void *context)
{
    (void)number, (void)about;
    ucontext_t *interrupted = context;
    bool is_over = !on || ++steps == target;
    if (on && is_over) {
        on = false;
        kept = malloc(8000);
    }
    if (is_over)
        interrupted->uc_mcontext.gregs[REG_EFL] &= ~TRAP;
}

static void *wait_for_end(void *unused)
{
    void *block = malloc(10000);
    pthread_barrier_wait(&waiting);
    pthread_barrier_wait(&waiting);
    free(block);
    return unused;
}

static void *run(void *unused)
{
    void *first = malloc(40);
    void *second = malloc(40);
    void *third = NULL;
    on = true;
    __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
    if (frees)
        free(second);
    else
        third = malloc(40);
    __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
    on = false;
    void *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(16 + i * 7), (int)i, 16 + i * 7);
    for (size_t i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    if (!frees)
        free(second);
    free(first);
    free(third);
    return unused;
}

/* Returns the exit code of a process that interrupts the call at one instruction: 0 if it was
 * interrupted there and ended well, and 3 if the call has fewer instructions. */
static int interrupt(long where)
{
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        void *blocks[100];
        for (size_t i = 0; i < COUNT(blocks); i++)
            memset(blocks[i] = malloc(100000), 1, 100000);
        for (size_t i = 0; i < COUNT(blocks); i++)
            free(blocks[i]);
        target = where;
        steps = 0;
        pthread_t id;
        if (pthread_create(&id, NULL, run, NULL) != 0)
            _exit(2);
        pthread_join(id, NULL);
        _exit(kept == NULL ? 3 : 0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    frees = strcmp(argv[1], "free") == 0;
    require_cairn();
    struct sigaction action = {.sa_sigaction = step, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    pthread_t ids[WAITING];
    pthread_barrier_init(&waiting, NULL, WAITING + 1);
    for (int i = 0; i < WAITING; i++)
        if (pthread_create(&ids[i], NULL, wait_for_end, NULL) != 0)
            return 1;
    pthread_barrier_wait(&waiting);
    long bad = 0;
    long where = 1;
    for (int code; where < MOST && (code = interrupt(where)) != 3; where++)
        bad += code != 0;
    printf("%ld %ld\n", where - 1, bad);
    pthread_barrier_wait(&waiting);
    for (int i = 0; i < WAITING; i++)
        pthread_join(ids[i], NULL);
    return 0;
}
