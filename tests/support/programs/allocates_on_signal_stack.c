/* allocates_on_signal_stack.c - a handler that allocates for some time on an alternate stack. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BYTES = 64 << 10, CHECKED = 4096, MS = 60 };

static char stack[BYTES] __attribute__((aligned(16)));
static volatile int wrong;

static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

/* Fills an array on the alternate stack, allocates for a while, and counts the bytes of the array
 * that have changed. The array lies at the upper end of the stack, where only the kernel's signal
 * frame is above it. */
static void on_signal(int number)
{
    volatile unsigned char mine[CHECKED];
    for (int i = 0; i < CHECKED; i++)
        mine[i] = (unsigned char)(i + number);
    for (double until = cpu_ms() + MS; cpu_ms() < until;)
        for (int i = 0; i < 100; i++)
            free(malloc((size_t)(100 + i)));
    for (int i = 0; i < CHECKED; i++)
        wrong += mine[i] != (unsigned char)(i + number);
}

int main(void)
{
    const stack_t mine = {.ss_sp = stack, .ss_size = BYTES};
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    stack_t after;
    if (sigaltstack(&mine, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0)
        return 2;
    raise(SIGUSR1);
    if (sigaltstack(NULL, &after) != 0 || after.ss_sp != (void *)stack || after.ss_flags != 0)
        return 3;
    puts(wrong == 0 ? "went on" : "overwritten");
    return 0;
}
