/* forks.c - forks NAME COUNT: forks COUNT times in a state in which a fork could hang, and prints
 * how many children failed. NAME is one of the ways at the end of this file. A process that hangs
 * ends by its alarm after 100 seconds.
 *
 * The ways that begin with "handler" fork in the handler of a timer. The timer interrupts malloc
 * and free of the main thread at random places. The child allocates a little, and then calls
 * _exit() or exec(). glibc allows that in a program with one thread. */
#include "conformance.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum { HANGS_AFTER_S = 100, LIVE = 400, THREADS = 4, STACK_BYTES = 1 << 16 };

extern char **environ;
static char *true_words[] = {(char *)"/bin/true", NULL};

static void *volatile live[LIVE];
static volatile sig_atomic_t done; /* number of children that ended */
static volatile sig_atomic_t failed;
static atomic_bool over;

static size_t any_size(uint64_t *state)
{
    uint64_t kind = draw(state) >> 58; /* 0 to 63 */
    return draw_below(state, kind == 0 ? 3 << 20 : kind < 8 ? 70000 : 1000) + 1;
}

/* Fills a block and returns it. Ends the process if there is no memory. */
static void *filled(void *p, size_t size)
{
    if (p == NULL)
        _exit(3);
    return memset(p, 0x5a, size);
}

/* Allocates in every way. If `old` is true, also frees blocks from before the fork. */
static void allocate_a_little(bool old)
{
    for (size_t size = 8; size < 300000; size = size * 3 + 1) {
        void *p = filled(malloc(size), size);
        char *zero = calloc(1, size);
        if (zero == NULL || zero[0] != 0 || zero[size - 1] != 0)
            _exit(4);
        p = realloc(p, size * 2);
        if (p == NULL || *(char *)p != 0x5a || malloc_usable_size(p) < size * 2)
            _exit(5);
        free(zero);
        free(realloc(filled(p, size * 2), size / 2 + 1));
        void *aligned = NULL;
        if (posix_memalign(&aligned, 256, size) != 0 || (uintptr_t)aligned % 256 != 0)
            _exit(6);
        free(filled(aligned, size));
    }
    for (size_t i = 0; old && i < LIVE; i += 7) {
        free(live[i]);
        live[i] = NULL;
    }
}

static void wait_for(pid_t child)
{
    int saved = errno;
    int status = 1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    failed += child <= 0 || status != 0;
    done++;
    errno = saved;
}

static _Noreturn void end_child(bool old)
{
    alarm(HANGS_AFTER_S);
    allocate_a_little(old);
    _exit(0);
}

static void fork_and_wait(void)
{
    pid_t child = fork();
    if (child == 0)
        end_child(true);
    wait_for(child);
}

/* --- threads ---------------------------------------------------------------------------------- */

static _Atomic(void *) handed[64];

static void *allocate_and_free(void *argument)
{
    uint64_t state = (uintptr_t)argument + 1;
    while (!atomic_load(&over)) {
        for (int i = 0; i < 200; i++) {
            size_t size = any_size(&state);
            char *p = malloc(size);
            if (p != NULL)
                *p = 1;
            free(atomic_exchange(&handed[draw_below(&state, COUNT(handed))], p));
        }
        usleep(200); /* leaves processor time to the children */
    }
    return NULL;
}

static void *flush(void *argument)
{
    while (!atomic_load(&over)) {
        fflush(NULL);
        usleep(100);
    }
    return argument;
}

/* Allocates while it holds the lock of a stream: getline() enlarges its line, and fopen() allocates
 * a stream. */
static void *read_lines(void *argument)
{
    FILE *file = tmpfile();
    if (file == NULL)
        abort();
    for (int i = 0; i < 60000; i++)
        fputc('x', file);
    fputc('\n', file);
    while (!atomic_load(&over)) {
        char *line = NULL;
        size_t room = 0;
        rewind(file);
        if (getline(&line, &room, file) < 0)
            abort();
        free(line);
        FILE *other = fopen("/dev/null", "w");
        if (other != NULL)
            fclose(other);
        usleep(100);
    }
    fclose(file);
    return argument;
}

static void no_handler(void)
{
}

/* Enlarges the table of fork handlers, which libc does by malloc. */
static void *register_handlers(void *argument)
{
    for (int i = 0; i < 400 && !atomic_load(&over); i++) {
        pthread_atfork(no_handler, no_handler, no_handler);
        usleep(100);
    }
    return argument;
}

static pthread_t threads[THREADS];
static size_t thread_count;

static void begin_thread(void *(*body)(void *))
{
    if (pthread_create(&threads[thread_count], NULL, body, (void *)thread_count) != 0)
        _exit(2);
    thread_count++;
}

/* --- fork handlers of the program ------------------------------------------------------------- */

static void allocate_in_handler(void)
{
    allocate_a_little(false);
}

static void fork_in_fork_handler(void)
{
    static _Thread_local bool within;
    if (within)
        return;
    within = true;
    pid_t child = fork();
    if (child == 0)
        end_child(false);
    wait_for(child);
    within = false;
}

/* --- children --------------------------------------------------------------------------------- */

static void fork_to_exec(void)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(HANGS_AFTER_S);
        allocate_a_little(true);
        execve(true_words[0], true_words, environ);
        _exit(7);
    }
    wait_for(child);
}

/* The child is a full program: it returns from the handler, and the interrupted call ends in it. */
static bool is_child;

static void fork_to_return(void)
{
    pid_t child = fork();
    is_child = child == 0;
    if (is_child)
        alarm(HANGS_AFTER_S);
    else
        wait_for(child);
}

static void fork_twice(void)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(HANGS_AFTER_S);
        allocate_a_little(false);
        pid_t grandchild = fork();
        if (grandchild == 0)
            end_child(true);
        int status = 1;
        _exit(waitpid(grandchild, &status, 0) != grandchild || status != 0);
    }
    wait_for(child);
}

/* _Fork() runs no fork handlers. A libc without that function gets the system call. */
pid_t _Fork(void) __attribute__((weak));

static pid_t bare_fork(void)
{
    return _Fork != NULL ? _Fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static void fork_bare(void)
{
    pid_t child = bare_fork();
    if (child == 0)
        end_child(true);
    wait_for(child);
}

/* A child of vfork() has its parent's memory. It may allocate if the allocator has a vfork() of its
 * own. */
static void vfork_to_exec(void)
{
    pid_t child = vfork();
    if (child == 0) {
#if defined(__x86_64__) || defined(__aarch64__)
        allocate_a_little(false);
#endif
        execve(true_words[0], true_words, environ);
        _exit(7);
    }
    wait_for(child);
}

static void spawn(void)
{
    pid_t child = -1;
    if (posix_spawn(&child, true_words[0], NULL, NULL, true_words, environ) != 0)
        child = -1;
    wait_for(child);
}

static int body_of_clone(void *argument)
{
    allocate_a_little(false);
    return argument != NULL;
}

/* The child has the parent's memory, and the parent's thread waits until the child has ended. */
static void clone_with_memory(void)
{
    static _Alignas(64) char stack[STACK_BYTES];
    wait_for(clone(body_of_clone, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
}

/* --- the main thread -------------------------------------------------------------------------- */

static void (*act)(void);
static int wanted; /* number of children to fork */
static timer_t timer;

/* Starts the timer, which fires once. */
static void start_timer(void)
{
    static unsigned draws;
    long us = 20 + (long)(draws++ * 7919 % 211);
    timer_settime(timer, 0, &(struct itimerspec){.it_value.tv_nsec = us * 1000}, NULL);
}

/* Starts the timer again at the end of the handler, so that the interrupted code goes on in
 * between. */
static void on_timer(int number)
{
    (void)number;
    if (done >= wanted || is_child)
        return;
    act();
    start_timer();
}

/* Allocates and frees, while the timer's handler calls `act`. A child that returned from the
 * handler goes on for a while, and ends. */
static void work_with_timer(void)
{
    struct sigaction action = {.sa_handler = on_timer};
    sigaction(SIGUSR1, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
        _exit(2);
    uint64_t state = 1;
    int left = 20000;
    start_timer();
    while (done < wanted) {
        size_t slot = draw_below(&state, LIVE);
        size_t size = any_size(&state);
        bool resize = draw_below(&state, 4) == 0;
        void *old = live[slot];
        live[slot] = NULL; /* a child must not free it again */
        if (!resize)
            free(old);
        char *p = resize ? realloc(old, size) : malloc(size);
        if (p == NULL)
            _exit(8);
        *p = p[size - 1] = 1;
        live[slot] = p;
        if (is_child && --left == 0)
            _exit(0);
    }
}

enum {
    IN_HANDLER = 1,  /* forks in the handler of a timer */
    BUSY = 2,        /* beside threads that allocate */
    STREAMS = 4,     /* beside threads that use streams */
    REGISTERING = 8, /* beside a thread that registers fork handlers */
    ALLOCATING = 16, /* with fork handlers that allocate */
    FORKING = 32,    /* with a fork handler that forks */
};

static const struct way {
    const char *name;
    void (*act)(void);
    unsigned how;
} ways[] = {
    {"streams", fork_and_wait, STREAMS},
    {"streams and busy", fork_and_wait, STREAMS | BUSY},
    {"handler", fork_and_wait, IN_HANDLER},
    {"handler exec", fork_to_exec, IN_HANDLER},
    {"handler returns", fork_to_return, IN_HANDLER},
    {"handler twice", fork_twice, IN_HANDLER},
    {"handler _Fork", fork_bare, IN_HANDLER},
    {"handler vfork", vfork_to_exec, IN_HANDLER},
    {"handler spawn", spawn, IN_HANDLER},
    {"handler busy", fork_and_wait, IN_HANDLER | BUSY},
    {"handler busy _Fork", fork_bare, IN_HANDLER | BUSY},
    {"busy _Fork", fork_bare, BUSY},
    {"busy clone", clone_with_memory, BUSY},
    {"busy spawn", spawn, BUSY},
    {"registering", fork_and_wait, REGISTERING | BUSY},
    {"allocating", fork_and_wait, ALLOCATING | BUSY},
    {"forking", fork_and_wait, FORKING | BUSY},
};

static void run(const struct way *way)
{
    act = way->act;
    if ((way->how & ALLOCATING) != 0)
        pthread_atfork(allocate_in_handler, allocate_in_handler, allocate_in_handler);
    if ((way->how & FORKING) != 0)
        pthread_atfork(fork_in_fork_handler, NULL, NULL);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* only the main thread gets the signal */
    if ((way->how & REGISTERING) != 0)
        begin_thread(register_handlers);
    if ((way->how & STREAMS) != 0) {
        begin_thread(flush);
        begin_thread(read_lines);
        begin_thread(read_lines);
    }
    while ((way->how & BUSY) != 0 && thread_count < THREADS)
        begin_thread(allocate_and_free);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    for (size_t i = 0; i < LIVE; i++)
        live[i] = malloc(i * 9 + 1);
    if ((way->how & IN_HANDLER) != 0)
        work_with_timer();
    else
        while (done < wanted)
            act();
    atomic_store(&over, true);
    for (size_t i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    for (size_t i = 0; i < COUNT(ways); i++) {
        if (strcmp(ways[i].name, argv[1]) != 0)
            continue;
        alarm(HANGS_AFTER_S);
        wanted = atoi(argv[2]);
        run(&ways[i]);
        printf("%d of %d failed\n", (int)failed, (int)done);
        return failed != 0;
    }
    return 2;
}
