/* line_writers.c - threads that write to small blocks:
 *
 *     line_writers THREADS COUNT BYTES WRITERS ROUNDS
 *
 * Each thread allocates COUNT blocks of BYTES bytes, in turns with the other threads. Then the
 * first WRITERS threads write to the first word of each of their blocks, ROUNDS thousand times. The
 * other threads read theirs as often. No thread allocates meanwhile.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

static size_t threads, count, bytes, writers, rounds;
static pthread_barrier_t barrier;
static volatile uint64_t total;

static void *work(void *given)
{
    size_t own = (size_t)given;
    volatile uint64_t **blocks = calloc(count, sizeof *blocks);
    for (size_t i = 0; i < count; i++) {
        pthread_barrier_wait(&barrier);
        blocks[i] = malloc(bytes);
        *blocks[i] = 0;
    }
    uint64_t sum = 0;
    for (size_t round = 0; round < 1000 * rounds; round++)
        for (size_t i = 0; i < count; i++)
            if (own < writers)
                ++*blocks[i];
            else
                sum += *blocks[i];
    total = sum;
    pthread_barrier_wait(&barrier);
    return NULL;
}

int main(int argument_count, char **arguments)
{
    if (argument_count != 6)
        return 2;
    size_t *const numbers[] = {&threads, &count, &bytes, &writers, &rounds};
    for (int i = 0; i < 5; i++)
        *numbers[i] = strtoul(arguments[i + 1], NULL, 10);
    pthread_t all[64];
    if (threads > 64)
        return 2;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (size_t i = 0; i < threads; i++)
        pthread_create(&all[i], NULL, work, (void *)i);
    for (size_t i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    return 0;
}
