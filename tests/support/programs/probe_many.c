/* probe_many.c THREADS BLOCKS - starts THREADS threads that live at once. Each allocates and frees
 * BLOCKS blocks. Prints the highest resident memory as JSON. Exits with status 75 if it cannot
 * start all threads. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static void *(*volatile do_malloc)(size_t) = malloc;
static void (*volatile do_free)(void *) = free;

static pthread_barrier_t all_here;
static long blocks;

static void *work(void *unused)
{
    (void)unused;
    for (long i = 0; i < blocks; i++)
        do_free(do_malloc((size_t)(16 + i)));
    pthread_barrier_wait(&all_here);
    return NULL;
}

int main(int argc, char **argv)
{
    long count = argc > 2 ? atol(argv[1]) : 0;
    blocks = argc > 2 ? atol(argv[2]) : 0;
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    pthread_barrier_init(&all_here, NULL, (unsigned)count + 1);
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], &attributes, work, NULL) != 0)
            return 75;
    pthread_barrier_wait(&all_here);
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"peak_kib\":%ld}\n", usage.ru_maxrss);
    return 0;
}
