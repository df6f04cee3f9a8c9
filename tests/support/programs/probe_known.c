/* probe_known.c - a program whose calls of its allocator are known. The first argument selects
 * them:
 *
 *     counts N  calls every function N times from one thread, and then N times from each of four
 *               threads; prints the numbers of calls as JSON
 *     kernel    makes the allocator call the kernel, between two calls of close(-77) that a trace
 *               can find
 *     jump      leaves an operation by siglongjmp, from a signal that interrupts it, and continues;
 *               prints "went on"
 *     mask      blocks every signal in every way, then allocates
 *     forks N   forks N children that allocate and end; the last one ends by _exit(7)
 *     hand N K  allocates N blocks, of which another thread frees the last K
 *     grow N    allocates and frees N blocks one after another, and then allocates N blocks, which
 *               another thread frees
 *     refused N makes N mallocs, 2 N callocs and 3 N reallocs of more memory than there is, and N
 *               reallocs that free their block
 *     trim      frees its blocks, and returns their memory by malloc_trim
 *     wait      allocates, prints a line, and waits to be killed
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4 };

static size_t rounds = 1000;

/* Called through volatile pointers, so that no compiler removes a pair of calls. */
static void *(*volatile do_malloc)(size_t) = malloc;
static void (*volatile do_free)(void *) = free;

static void work(void)
{
    for (size_t i = 0; i < rounds; i++) {
        void *aligned = NULL;
        do_free(do_malloc(i % 50 == 0 ? 2000 : i % 333 == 0 ? 100000 : 1 + i % 1024));
        do_free(calloc(3, 1 + i % 100));
        do_free(realloc(realloc(NULL, 10), 20 + i));
        do_free(reallocarray(NULL, 5, 8));
        if (posix_memalign(&aligned, 64, 100) == 0)
            do_free(aligned);
        do_free(aligned_alloc(32, 64));
        do_free(memalign(128, 50));
        do_free(NULL);
    }
}

/* The barrier keeps all threads alive at once. So libc reuses no memory of an ended thread, and
 * allocates and frees the same number of blocks for each thread. */
static pthread_barrier_t all_here;

static void *thread(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&all_here);
    work();
    pthread_barrier_wait(&all_here);
    return NULL;
}

static void counts(void)
{
    work();
    pthread_t threads[THREADS];
    pthread_barrier_init(&all_here, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, thread, NULL) != 0)
            exit(2);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    size_t each = (THREADS + 1) * rounds;
    printf("{\"malloc\":%zu,\"calloc\":%zu,\"realloc\":%zu,\"reallocarray\":%zu,\"posix_memalign\":"
           "%zu,"
           "\"aligned_alloc\":%zu,\"memalign\":%zu,\"free(NULL)\":%zu}\n",
           each, each, 2 * each, each, each, each, each, each);
}

static void kernel(void)
{
    static void *blocks[2000];
    do_free(do_malloc(1));
    do_free(do_malloc(100000));
    close(-77);
    for (size_t round = 0; round < 30; round++) {
        for (size_t i = 0; i < 2000; i++) {
            blocks[i] = do_malloc(16 + i * 7919 % 30000);
            memset(blocks[i], 1, 16);
        }
        for (size_t i = 0; i < 2000; i++)
            do_free(blocks[i]);
        char *large = do_malloc(3 << 20);
        memset(large, 1, 3 << 20);
        large = realloc(large, 5 << 20);
        do_free(large);
    }
    close(-77);
}

static sigjmp_buf back;

static void on_alarm(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

/* Needs the allocator of tests/support/programs/probe_scripted_malloc.c, where the allocation of 77
 * bytes takes a tenth of a second. So the alarm after 20 ms interrupts it. */
static void jump(void)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    sigaction(SIGALRM, &action, NULL);
    if (sigsetjmp(back, 1) == 0) {
        setitimer(ITIMER_REAL, &soon, NULL);
        do_free(do_malloc(77));
        puts("was not interrupted");
    }
    work();
    puts("went on");
}

static void mask(void)
{
    sigset_t all;
    sigset_t now;
    struct sigaction action = {.sa_handler = on_alarm};
    sigfillset(&all);
    sigfillset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
    sigprocmask(SIG_SETMASK, &all, NULL);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    kernel();
    sigprocmask(SIG_SETMASK, NULL, &now);
    printf("%d %d\n", sigismember(&now, SIGINT), sigismember(&now, SIGUSR2));
    if (sigsetjmp(back, 1) == 0) {
        sigemptyset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        raise(SIGUSR1);
    }
    kernel();
    puts("went on");
}

static void forks(int count)
{
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            work();
            i + 1 == count ? _exit(7) : exit(0);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child)
            exit(2);
    }
}

static void **handed;
static size_t handed_count;
static size_t own_count;

static void *free_all_but_own(void *unused)
{
    (void)unused;
    for (size_t i = own_count; i < handed_count; i++)
        do_free(handed[i]);
    return NULL;
}

static void hand(size_t count, size_t away_count)
{
    pthread_t thread;
    handed = do_malloc(count * sizeof *handed);
    handed_count = count;
    own_count = count - away_count;
    for (size_t i = 0; i < count; i++)
        handed[i] = do_malloc(i % 10 == 0 ? 40000 : 40);
    if (pthread_create(&thread, NULL, free_all_but_own, NULL) != 0)
        exit(2);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < own_count; i++)
        do_free(handed[i]);
    do_free(handed);
}

static void *free_when_all_are_here(void *unused)
{
    pthread_barrier_wait(&all_here);
    return free_all_but_own(unused);
}

static void grow(size_t count)
{
    pthread_t thread;
    do_free(do_malloc(40)); /* the probe counts threads from now on */
    pthread_barrier_init(&all_here, NULL, 2);
    if (pthread_create(&thread, NULL, free_when_all_are_here, NULL) != 0)
        exit(2);
    for (size_t i = 0; i < count; i++)
        do_free(do_malloc(40));
    handed = do_malloc(count * sizeof *handed);
    handed_count = count;
    for (size_t i = 0; i < count; i++)
        handed[i] = do_malloc(40);
    pthread_barrier_wait(&all_here);
    pthread_join(thread, NULL);
    do_free(handed);
}

static void refused(size_t count)
{
    static volatile size_t too_much = PTRDIFF_MAX / 4;
    unsigned served = 0;
    for (size_t i = 0; i < count; i++) {
        served += do_malloc(too_much) != NULL;
        for (int k = 0; k < 2; k++)
            served += calloc(too_much, 2) != NULL;
        char *block = do_malloc(40);
        block[0] = 'x';
        for (int k = 0; k < 3; k++)
            served += realloc(block, too_much) != NULL;
        served += block[0] != 'x';
        served += realloc(block, 0) != NULL;
    }
    if (served != 0)
        exit(2);
}

static void trim(void)
{
    static void *blocks[3000];
    for (size_t i = 0; i < 3000; i++)
        blocks[i] = memset(do_malloc(4000), 1, 4000);
    for (size_t i = 0; i + 1 < 3000; i++)
        do_free(blocks[i]);
    printf("%d\n", malloc_trim(0));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "counts") == 0) {
        rounds = (size_t)atoi(argv[2]);
        counts();
    } else if (strcmp(what, "kernel") == 0) {
        kernel();
    } else if (strcmp(what, "jump") == 0) {
        jump();
    } else if (strcmp(what, "mask") == 0) {
        mask();
    } else if (strcmp(what, "forks") == 0) {
        forks(atoi(argv[2]));
    } else if (strcmp(what, "hand") == 0) {
        hand((size_t)atoi(argv[2]), (size_t)atoi(argv[3]));
    } else if (strcmp(what, "grow") == 0) {
        grow((size_t)atoi(argv[2]));
    } else if (strcmp(what, "refused") == 0) {
        refused((size_t)atoi(argv[2]));
    } else if (strcmp(what, "trim") == 0) {
        trim();
    } else if (strcmp(what, "wait") == 0) {
        work();
        puts("waiting");
        fflush(stdout);
        for (;;)
            pause();
    } else {
        return 64;
    }
    return 0;
}
