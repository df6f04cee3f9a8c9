/* late_births.c - late_births THREADS WHAT: ten threads allocate and wait. Then THREADS threads run
 * one after the other. Each takes three small blocks, and the destructor of its thread-specific
 * value makes it need a heap at its end: with WHAT = "large" the destructor frees a block of 64
 * KiB, with "medium" it allocates one of 8,000 bytes, and with "many" it frees 100 small blocks.
 * With "first" it is as with "medium", but the thread takes no small blocks before. Prints how many
 * threads have a heap at the end. */
#include "conformance.h"

#include <cairn/cairn.h>
#include <pthread.h>

enum { WAITING = 10, SMALL = 100 };

static pthread_barrier_t waiting;
static pthread_key_t key;
static const char *what;
static char *blocks[SMALL];

static void end_with(void *value)
{
    if (strcmp(what, "many") == 0)
        for (int i = 0; i < SMALL; i++)
            free(blocks[i]);
    if (strcmp(what, "medium") == 0 || strcmp(what, "first") == 0) {
        char *p = malloc(8000);
        if (p == NULL)
            abort();
        *p = 1;
        free(p);
    }
    free(value);
}

static void *run(void *value)
{
    if (strcmp(what, "first") == 0) {
        pthread_setspecific(key, value);
        return NULL;
    }
    char *small[3];
    for (int i = 0; i < 3; i++) {
        small[i] = malloc(40);
        if (small[i] == NULL)
            abort();
        memset(small[i], i, 40);
    }
    pthread_setspecific(key, value);
    for (int i = 0; i < 3; i++)
        free(small[i]);
    return NULL;
}

static void *wait_for_end(void *unused)
{
    free(malloc(10000));
    pthread_barrier_wait(&waiting);
    pthread_barrier_wait(&waiting);
    return unused;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    what = argv[2];
    require_cairn();
    void (*statistics)(struct cairn_stats *) = named("cairn_statistics");
    pthread_t ids[WAITING];
    pthread_barrier_init(&waiting, NULL, WAITING + 1);
    pthread_key_create(&key, end_with);
    for (int i = 0; i < WAITING; i++)
        if (pthread_create(&ids[i], NULL, wait_for_end, NULL) != 0)
            return 1;
    pthread_barrier_wait(&waiting);
    for (long i = strtol(argv[1], NULL, 10); i > 0; i--) {
        for (int k = 0; k < SMALL; k++)
            blocks[k] = malloc(50);
        char *value = malloc(strcmp(what, "large") == 0 ? 65536 : 40);
        pthread_t id;
        if (pthread_create(&id, NULL, run, value) != 0)
            return 1;
        pthread_join(id, NULL);
        if (strcmp(what, "many") != 0)
            for (int k = 0; k < SMALL; k++)
                free(blocks[k]);
    }
    static struct cairn_stats stats;
    statistics(&stats);
    printf("%zu\n", stats.thread_count);
    pthread_barrier_wait(&waiting);
    for (int i = 0; i < WAITING; i++)
        pthread_join(ids[i], NULL);
    return 0;
}
