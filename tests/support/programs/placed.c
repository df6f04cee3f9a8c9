/* placed.c - a program whose blocks stay live: placed THREADS COUNT BYTES CHURN WAITING.
 *
 * Each thread allocates COUNT blocks of BYTES bytes, and frees the first WAITING of them. Then it
 * CHURN times allocates one block and frees its oldest block. The blocks of all threads are live at
 * the same time. If THREADS is 1, the main thread does this work. Otherwise the main thread only
 * waits.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

/* No thread is further ahead of another than this number of blocks. */
enum { TOGETHER = 256 };

static size_t threads, count, bytes, churn, waiting;
static pthread_barrier_t barrier;

static void *work(void *nothing)
{
    char **blocks = mmap(NULL, count * sizeof *blocks, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (threads > 1)
        pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < count; i++) {
        (blocks[i] = malloc(bytes))[0] = 1;
        if (threads > 1 && i % TOGETHER == 0)
            pthread_barrier_wait(&barrier);
    }
    for (size_t i = 0; i < waiting; i++) {
        free(blocks[i]);
        blocks[i] = NULL;
    }
    for (size_t i = 0; i < churn; i++) {
        size_t oldest = (waiting + i) % count;
        char *block = malloc(bytes);
        block[0] = 1;
        free(blocks[oldest]);
        blocks[oldest] = NULL;
        blocks[i % count] = block;
    }
    if (threads > 1)
        pthread_barrier_wait(&barrier);
    return nothing;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    size_t *const numbers[] = {&threads, &count, &bytes, &churn, &waiting};
    for (int i = 0; i < 5; i++)
        *numbers[i] = strtoul(argv[i + 1], NULL, 10);
    if (threads == 1) {
        work(NULL);
        return 0;
    }
    pthread_t all[64];
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (size_t i = 0; i < threads; i++)
        pthread_create(&all[i], NULL, work, NULL);
    for (size_t i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    return 0;
}
