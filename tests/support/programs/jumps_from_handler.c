/* Allocates all the time. A timer's signal handler also allocates, and often leaves the interrupted
 * operation by a jump. The allocator must permit this, as ring_malloc.c does. */
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

static sigjmp_buf again;
static volatile sig_atomic_t armed, signals;

static void handler(int number)
{
    (void)number;
    signals++;
    free(malloc(5000));
    if (armed && signals % 3 == 0)
        siglongjmp(again, 1);
}

int main(void)
{
    enum { SIGNALS = 6000, MICROSECONDS = 50, BLOCKS = 300 };
    const struct itimerval every = {{0, MICROSECONDS}, {0, MICROSECONDS}};
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &every, NULL);
    while (signals < SIGNALS) {
        if (sigsetjmp(again, 1) != 0)
            continue;
        armed = 1;
        for (int i = 0; i < BLOCKS; i++)
            free(malloc(100 + (size_t)i * 10));
        armed = 0;
    }
    return 0;
}
