/* probe_sizes.c THREADS [SIZE COUNT]... - for each pair, each thread allocates and frees SIZE bytes
 * COUNT times. If SIZE is 0, it computes for COUNT milliseconds instead. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static void *(*volatile do_malloc)(size_t) = malloc;
static void (*volatile do_free)(void *) = free;

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void *work(void *arguments)
{
    for (char **pair = arguments; pair[0] != NULL && pair[1] != NULL; pair += 2) {
        size_t bytes = (size_t)atol(pair[0]);
        for (long count = atol(pair[1]); count > 0 && bytes != 0; count--)
            do_free(do_malloc(bytes));
        for (uint64_t end = cpu_ns() + (uint64_t)atol(pair[1]) * 1000000;
             bytes == 0 && cpu_ns() < end;)
            continue;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[64];
    int count = argc > 1 ? atoi(argv[1]) : 0;
    if (count < 1 || count > 64)
        return 64;
    for (int i = 1; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, argv + 2) != 0)
            return 1;
    work(argv + 2);
    for (int i = 1; i < count; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
