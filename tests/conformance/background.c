/* background [ALONE]: 64 MiB of blocks are freed by the time that it sleeps for two seconds; then its child does the same. Prints for each
 * how many threads there were, and how many KB were resident before and after the sleep. With an argument no thread can be had. */
#include "conformance.h"

#include <pthread.h>
#include <sys/wait.h>

enum { BLOCK = 1000, BLOCKS = 64 * 1024 };

static void burst(void)
{
    static char *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(BLOCK), 1, BLOCK);
    for (size_t i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    long before = status_kb("VmRSS:");
    sleep(2);
    printf("%ld %ld %ld\n", status_kb("Threads:"), before, status_kb("VmRSS:"));
    fflush(stdout);
}

static bool alone;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        dlsym(RTLD_NEXT, "pthread_create");
    return alone ? EAGAIN : create(thread, attributes, body, argument);
}

int main(int argc, char **argv)
{
    (void)argv;
    alone = argc > 1;
    burst();
    pid_t child = fork();
    if (child == 0) {
        printf("%ld\n", status_kb("Threads:"));
        burst();
        return 0;
    }
    int status;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
