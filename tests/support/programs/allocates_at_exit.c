/* Ends while a timer's signal handler allocates. The last operation before the end was made deeper
 * in the stack than any frame of the handler. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static volatile sig_atomic_t ending;

static void handler(int number)
{
    (void)number;
    if (ending)
        free(malloc(5000));
}

static __attribute__((noinline)) void deep(int calls)
{
    volatile char frame[4096];
    frame[0] = (char)calls;
    if (calls != 0)
        deep(calls - 1);
    else
        free(malloc(100));
    frame[1] = frame[0];
}

int main(void)
{
    enum { BLOCKS = 3000, BYTES = 4000, MICROSECONDS = 20, CALLS = 200 };
    const struct itimerval every = {{0, MICROSECONDS}, {0, MICROSECONDS}};
    for (int i = 0; i < BLOCKS; i++)
        memset(malloc(BYTES), 1, BYTES);
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &every, NULL);
    deep(CALLS);
    ending = 1;
    return 0;
}
