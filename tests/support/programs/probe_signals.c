/* probe_signals.c - uses signals and forks while an allocator works, as real programs do. Prints
 * "went on" if the program survives. The argument selects the case:
 *
 *     handlers   sets a handler for every signal by every function, and blocks all signals, before
 *                and after the first allocation
 *     early      sets a handler with a full mask before the first allocation. The handler runs
 *                within an operation
 *     jump       saves a full mask before it allocates, and restores it by siglongjmp
 *     waits      allocates in handlers that run under the masks of sigsuspend, ppoll, pselect and
 *                epoll_pwait
 *     young      sends a signal to each of many threads when the thread begins
 *     ends       ends a thread in a handler that interrupts an operation
 *     fork       forks in a handler that interrupts an operation, which continues in the child
 *     lost       the same as "fork", in a child that cannot create a file
 *     worker     forks in a thread; the child cannot create a file, and its thread ends
 *     exit N     exits with code N
 *
 * The allocator is that of probe_scripted_malloc.c. An allocation of 77 bytes takes a tenth of a
 * second there, and one of 96 bytes makes system calls.
 */
#define _GNU_SOURCE 1
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void *(*volatile do_malloc)(size_t) = malloc;

static void allocate(void)
{
    for (int i = 0; i < 1000; i++)
        (void)do_malloc(i % 10 == 0 ? 96 : 200 + (size_t)i % 700);
}

static void soon(void)
{
    const struct itimerval in_20_ms = {.it_value = {.tv_usec = 20000}};
    setitimer(ITIMER_REAL, &in_20_ms, NULL);
}

/* The signal repeats. If a signal arrives before the wait begins, another one ends the wait. */
static void repeatedly(void)
{
    const struct itimerval each_20_ms = {.it_value = {.tv_usec = 20000},
                                         .it_interval = {.tv_usec = 20000}};
    setitimer(ITIMER_REAL, &each_20_ms, NULL);
}

static void nothing(int number)
{
    (void)number;
    (void)!write(STDERR_FILENO, "", 0);
}

static void by_every_function(void)
{
    for (int number = 1; number < 32; number++) {
        if (number == SIGKILL || number == SIGSTOP || number == SIGCHLD)
            continue;
        signal(number, SIG_DFL);
        ssignal(number, nothing);
        sysv_signal(number, SIG_IGN);
        sigset(number, nothing);
        sighold(number);
        sigignore(number);
        sigrelse(number);
        signal(number, nothing);
    }
    sigblock(-1);
    allocate();
    sigsetmask(-1);
    allocate();
    sigsetmask(0);
    if (signal(SIGSYS, SIG_DFL) != nothing)
        puts("lost a handler");
}

static sigset_t full(void)
{
    sigset_t all;
    sigfillset(&all);
    return all;
}

static void early(void)
{
    struct sigaction action = {.sa_handler = nothing, .sa_mask = full()};
    sigaction(SIGALRM, &action, NULL);
    soon();
    (void)do_malloc(77);
    allocate();
}

static void jump(void)
{
    sigset_t all = full();
    static sigjmp_buf back;
    static volatile int times;
    sigprocmask(SIG_SETMASK, &all, NULL);
    (void)sigsetjmp(back, 1);
    allocate();
    if (times++ == 0)
        siglongjmp(back, 1);
}

static void in_handler(int number)
{
    (void)number;
    allocate();
}

static void waits(void)
{
    const struct timespec second = {.tv_sec = 1};
    sigset_t but_one = full();
    struct epoll_event event;
    allocate();
    signal(SIGALRM, in_handler);
    sigdelset(&but_one, SIGALRM);
    repeatedly();
    sigsuspend(&but_one);
    ppoll(NULL, 0, &second, &but_one);
    pselect(0, NULL, NULL, NULL, &second, &but_one);
    epoll_pwait(epoll_create1(0), &event, 1, 1000, &but_one);
}

static void *allocates(void *argument)
{
    (void)do_malloc(96);
    return argument;
}

static void young(void)
{
    enum { THREADS = 3000 };
    signal(SIGUSR1, nothing);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, allocates, NULL) != 0)
            exit(2);
        for (int k = 0; k < 20; k++)
            pthread_kill(thread, SIGUSR1);
        pthread_join(thread, NULL);
    }
}

static void end_thread(int number)
{
    (void)number;
    pthread_exit(NULL);
}

static void *takes_long(void *argument)
{
    (void)do_malloc(77);
    return argument;
}

static void ends(void)
{
    pthread_t thread;
    signal(SIGUSR1, end_thread);
    if (pthread_create(&thread, NULL, takes_long, NULL) != 0)
        exit(2);
    usleep(20000);
    pthread_kill(thread, SIGUSR1);
    pthread_join(thread, NULL);
    allocate();
}

static pid_t child;

static void no_file(void)
{
    const struct rlimit none = {.rlim_max = RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &none);
}

static void fork_here(int number)
{
    (void)number;
    child = fork();
}

static void fork_lost(int number)
{
    const struct rlimit any = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    no_file();
    fork_here(number);
    setrlimit(RLIMIT_FSIZE, &any);
}

static void await(void)
{
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        puts("the child did not end well");
}

static void fork_within(void (*handler)(int))
{
    signal(SIGALRM, handler);
    soon();
    (void)do_malloc(77);
    allocate();
    if (child == 0)
        exit(0);
    await();
}

static void *forks(void *argument)
{
    allocate();
    child = fork();
    if (child == 0) {
        no_file();
        pthread_exit(NULL);
    }
    return argument;
}

static void worker(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, forks, NULL) != 0)
        exit(2);
    pthread_join(thread, NULL);
    await();
}

static void handlers(void)
{
    by_every_function();
    by_every_function();
}

static void fork_with_file(void)
{
    fork_within(fork_here);
}

static void fork_without_file(void)
{
    fork_within(fork_lost);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"handlers", handlers}, {"early", early}, {"jump", jump},           {"waits", waits},
    {"young", young},       {"ends", ends},   {"fork", fork_with_file}, {"lost", fork_without_file},
    {"worker", worker},
};

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (argc > 2 && strcmp(what, "exit") == 0) {
        allocate();
        return atoi(argv[2]);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(what, cases[i].name) == 0) {
            cases[i].run();
            puts("went on");
            return 0;
        }
    return 2;
}
