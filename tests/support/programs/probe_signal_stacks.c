/* probe_signal_stacks.c - checks that alternate signal stacks and the handlers on them are as the
 * program made them, although the probe has an alternate stack of its own. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 64 << 10, NEAR = 1 << 20 };

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static char stack_of_main[BYTES], stack_of_thread[BYTES];
static volatile uintptr_t ran_at;
static int refused;

static int is_in(uintptr_t address, const char *stack)
{
    return address >= (uintptr_t)stack && address < (uintptr_t)stack + BYTES;
}

static int is_near(uintptr_t address, const void *here)
{
    uintptr_t there = (uintptr_t)here;
    return (address > there ? address - there : there - address) < NEAR;
}

/* Also allocates a large block, so that the probe handles a system call while the handler runs. */
static void on_signal(int number)
{
    (void)number;
    char here;
    stack_t now, none = {.ss_flags = SS_DISABLE};
    ran_at = (uintptr_t)&here;
    free(malloc(300000));
    CHECK(sigaltstack(NULL, &now) == 0);
    if ((now.ss_flags & SS_ONSTACK) != 0)
        refused += sigaltstack(&none, NULL) == -1 && errno == EPERM;
}

static stack_t present(void)
{
    stack_t now;
    CHECK(sigaltstack(NULL, &now) == 0);
    return now;
}

static void raise_all(void)
{
    ran_at = 0;
    raise(SIGUSR1);
    CHECK(ran_at != 0);
}

static void check_own_stack(char *stack)
{
    char here;
    stack_t mine = {.ss_sp = stack, .ss_size = BYTES}, before;
    free(malloc(300000));
    CHECK(present().ss_flags == SS_DISABLE);
    CHECK(sigaltstack(&mine, &before) == 0);
    CHECK(before.ss_flags == SS_DISABLE && before.ss_sp == NULL && before.ss_size == 0);
    CHECK(present().ss_sp == (void *)stack && present().ss_size == BYTES);
    CHECK(present().ss_flags == 0);
    refused = 0;
    raise_all();
    CHECK(is_in(ran_at, stack) && refused == 1);
    CHECK(!is_near(ran_at, &here) || is_in((uintptr_t)&here, stack));
    free(malloc(300000));
    CHECK(present().ss_sp == (void *)stack);
    stack_t none = {.ss_flags = SS_DISABLE};
    CHECK(sigaltstack(&none, &before) == 0 && before.ss_sp == (void *)stack);
    CHECK(present().ss_flags == SS_DISABLE);
    raise_all();
    CHECK(!is_in(ran_at, stack));
    stack_t wrong = {.ss_sp = stack, .ss_size = 16};
    CHECK(sigaltstack(&wrong, NULL) == -1 && errno == ENOMEM);
    CHECK(sigaltstack(&mine, NULL) == 0);
    raise_all();
    CHECK(is_in(ran_at, stack));
}

static void *in_thread(void *nothing)
{
    check_own_stack(stack_of_thread);
    return nothing;
}

static int has_flag(void)
{
    struct sigaction now;
    CHECK(sigaction(SIGUSR2, NULL, &now) == 0);
    return (now.sa_flags & SA_ONSTACK) != 0;
}

/* These functions set a handler without SA_ONSTACK. */
static void check_flag_of_other_functions(void)
{
    sighandler_t (*const set[])(int, sighandler_t) = {signal, sysv_signal, sigset};
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    for (size_t i = 0; i <= sizeof set / sizeof set[0]; i++) {
        CHECK(sigaction(SIGUSR2, &action, NULL) == 0 && has_flag());
        if (i < sizeof set / sizeof set[0])
            CHECK(set[i](SIGUSR2, SIG_IGN) == on_signal);
        else
            CHECK(sigignore(SIGUSR2) == 0);
        CHECK(!has_flag());
    }
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    pid_t child = vfork();
    if (child == 0) {
        signal(SIGUSR2, SIG_DFL);
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(has_flag());
}

int main(void)
{
    char here;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK}, before;
    CHECK(present().ss_flags == SS_DISABLE);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    free(malloc(300000));
    CHECK(sigaction(SIGUSR1, NULL, &before) == 0);
    CHECK((before.sa_flags & SA_ONSTACK) != 0 && before.sa_handler == on_signal);
    check_flag_of_other_functions();
    /* No thread has an alternate stack, so the handler runs on the ordinary stack of the thread. */
    raise_all();
    CHECK(is_near(ran_at, &here));
    if (fork() == 0) {
        free(malloc(300000));
        CHECK(present().ss_flags == SS_DISABLE);
        raise_all();
        _exit(is_near(ran_at, &here) ? 0 : 1);
    }
    int status;
    CHECK(wait(&status) > 0 && status == 0);
    check_own_stack(stack_of_main);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(sigaction(SIGUSR1, NULL, &before) == 0 && (before.sa_flags & SA_ONSTACK) != 0);
    action.sa_flags = 0;
    CHECK(sigaction(SIGUSR1, &action, &before) == 0 && (before.sa_flags & SA_ONSTACK) != 0);
    CHECK(sigaction(SIGUSR1, NULL, &before) == 0 && (before.sa_flags & SA_ONSTACK) == 0);
    raise_all();
    CHECK(is_near(ran_at, &here));
    puts("went on");
    return 0;
}
