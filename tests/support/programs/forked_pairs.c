/* forked_pairs.c - prints the CPU time in ns of many pairs of malloc and free: in a process, and in
 * its child. The last allocation before the fork is a large one. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void make_pairs(void)
{
    long long begin = cpu_ns();
    for (int i = 0; i < 1000000; i++) {
        void *volatile block = malloc(64);
        free(block);
    }
    printf("%lld\n", cpu_ns() - begin);
    fflush(stdout);
}

int main(void)
{
    make_pairs();
    void *volatile large = malloc(100000);
    if (large == NULL)
        return 1;
    if (fork() == 0) {
        make_pairs();
        _exit(0);
    }
    wait(NULL);
    return 0;
}
