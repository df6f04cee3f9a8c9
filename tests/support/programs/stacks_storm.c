/* stacks_storm.c - allocates where the search for the call stack could fail or hang:
 *
 *     fork      COUNT children, one after the other, while two threads allocate
 *     threads   COUNT threads that are born, allocate and end, four at a time
 *     libraries PATH: COUNT times dlopen, a call that allocates, dlclose
 *     signals   COUNT signals whose handler allocates, while the thread allocates
 *     nested    COUNT signal handlers, each interrupted by the next one; the last one allocates
 *     fibres    COUNT switches between fibres with stacks of 4 KiB that allocate
 *     deep      a recursion of COUNT calls that allocates at its end
 *
 * Prints "done" at the end.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static unsigned count;

NOINLINE void storm_allocates(size_t bytes)
{
    void *volatile block = malloc(bytes);
    free(block);
}

static _Atomic bool over;

static void *allocates_until_over(void *nothing)
{
    while (!over)
        storm_allocates(100);
    return nothing;
}

static void storm_fork(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, allocates_until_over, NULL);
    for (unsigned i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            storm_allocates(1000);
            _exit(0);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child || status != 0) {
            printf("a child ended with %d\n", status);
            exit(1);
        }
    }
    over = true;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

static void *allocates_once(void *nothing)
{
    for (int i = 0; i < 20; i++)
        storm_allocates(200);
    return nothing;
}

static void storm_threads(void)
{
    for (unsigned i = 0; i < count; i += 4) {
        pthread_t threads[4];
        for (int k = 0; k < 4; k++)
            pthread_create(&threads[k], NULL, allocates_once, NULL);
        for (int k = 0; k < 4; k++)
            pthread_join(threads[k], NULL);
    }
}

static void storm_libraries(const char *path)
{
    for (unsigned i = 0; i < count; i++) {
        void *library = dlopen(path, RTLD_NOW);
        void (*allocates)(size_t) = NULL;
        *(void **)&allocates = library != NULL ? dlsym(library, "plugin_allocates") : NULL;
        if (allocates == NULL) {
            printf("%s\n", dlerror());
            exit(1);
        }
        allocates(300);
        dlclose(library);
    }
}

static void on_signal(int number)
{
    (void)number;
    storm_allocates(64);
}

static void storm_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    for (unsigned i = 0; i < count; i++) {
        storm_allocates(48);
        raise(SIGUSR1);
    }
}

static volatile sig_atomic_t further;

NOINLINE void storm_interrupted(int number)
{
    if (--further > 0)
        raise(number);
    else
        storm_allocates(96);
    /* The asm statement keeps the compiler from turning the calls into jumps. */
    __asm__ volatile("" : : : "memory");
}

static void storm_nested(void)
{
    struct sigaction action = {.sa_handler = storm_interrupted, .sa_flags = SA_NODEFER};
    sigaction(SIGUSR1, &action, NULL);
    further = (sig_atomic_t)count;
    raise(SIGUSR1);
}

enum { FIBRES = 8, STACK_BYTES = 4096 };
static ucontext_t fibres[FIBRES], home;

static void fibre(void)
{
    for (;;) {
        int me = 0;
        storm_allocates(80);
        for (int i = 0; i < FIBRES; i++)
            if ((char *)&me >= (char *)fibres[i].uc_stack.ss_sp &&
                (char *)&me < (char *)fibres[i].uc_stack.ss_sp + STACK_BYTES)
                me = i;
        swapcontext(&fibres[me], &home);
    }
}

static void storm_fibres(void)
{
    for (int i = 0; i < FIBRES; i++) {
        getcontext(&fibres[i]);
        /* Each stack lies between two pages that must not be touched. */
        char *pages = mmap(NULL, 3 * STACK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(pages + STACK_BYTES, STACK_BYTES, PROT_READ | PROT_WRITE);
        fibres[i].uc_stack.ss_sp = pages + STACK_BYTES;
        fibres[i].uc_stack.ss_size = STACK_BYTES;
        makecontext(&fibres[i], fibre, 0);
    }
    for (unsigned i = 0; i < count; i++)
        swapcontext(&home, &fibres[i % FIBRES]);
}

NOINLINE unsigned storm_deep(unsigned depth)
{
    if (depth == 0) {
        storm_allocates(500);
        return 0;
    }
    unsigned below = storm_deep(depth - 1);
    /* The asm statement keeps the compiler from turning the recursion into a loop. */
    __asm__ volatile("" : "+r"(below));
    return below + 1;
}

int main(int arguments, char **argument)
{
    const char *what = arguments > 1 ? argument[1] : "";
    count = arguments > 2 ? (unsigned)strtoul(argument[2], NULL, 10) : 1;
    if (strcmp(what, "fork") == 0)
        storm_fork();
    else if (strcmp(what, "threads") == 0)
        storm_threads();
    else if (strcmp(what, "libraries") == 0)
        storm_libraries(argument[3]);
    else if (strcmp(what, "signals") == 0)
        storm_signals();
    else if (strcmp(what, "nested") == 0)
        storm_nested();
    else if (strcmp(what, "fibres") == 0)
        storm_fibres();
    else if (strcmp(what, "deep") == 0)
        storm_deep(count);
    else
        return 2;
    printf("done\n");
    return 0;
}
