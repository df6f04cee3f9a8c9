/* idle_threads.c - idle_threads THREADS: each thread allocates eight blocks of 24 to 3,072 bytes,
 * writes to them, frees them, and waits. Prints by how many KB the resident memory has grown, which
 * includes 8 KB for the stack of each thread. */
#include "conformance.h"

#include <pthread.h>

static pthread_barrier_t ready;
static pthread_barrier_t leave;

static long resident_kb(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1)
        abort();
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void *run(void *argument)
{
    char *blocks[8];
    for (size_t i = 0; i < COUNT(blocks); i++) {
        blocks[i] = malloc((size_t)24 << i);
        if (blocks[i] == NULL)
            abort();
        memset(blocks[i], 1, (size_t)24 << i);
    }
    for (size_t i = 0; i < COUNT(blocks); i++)
        free(blocks[i]);
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&leave);
    return argument;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    size_t threads = strtoul(argv[1], NULL, 10);
    require_cairn();
    pthread_t *ids = calloc(threads, sizeof *ids);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&ready, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&leave, NULL, (unsigned)threads + 1);
    long before = resident_kb();
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&ids[i], &small, run, NULL) != 0)
            return 1;
    pthread_barrier_wait(&ready);
    printf("%ld\n", resident_kb() - before);
    pthread_barrier_wait(&leave);
    for (size_t i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    free(ids);
    return 0;
}
