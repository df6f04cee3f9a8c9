/* line_sharers.c - opens files while other threads have blocks on the same cache lines:
 *
 *     line_sharers COUNT BYTES MILLISECONDS
 *
 * Each of two threads allocates COUNT blocks of BYTES bytes and waits. Meanwhile the main thread
 * duplicates a descriptor again and again, until the process has had so much CPU time. Now and then
 * it allocates a block of another size. Prints the highest number that a duplicate had.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 2, MOST = 1024, DUPLICATES = 500 };

static size_t count, bytes;
static pthread_barrier_t barrier;

static void *share(void *unused)
{
    void *blocks[MOST];
    for (size_t i = 0; i < count; i++)
        blocks[i] = malloc(bytes);
    pthread_barrier_wait(&barrier); /* all blocks are there */
    pthread_barrier_wait(&barrier); /* the main thread has ended its work */
    for (size_t i = 0; i < count; i++)
        free(blocks[i]);
    return unused;
}

static uint64_t used_ms(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000 + (uint64_t)used.tv_nsec / 1000000;
}

int main(int argument_count, char **arguments)
{
    pthread_t all[THREADS];
    if (argument_count != 4)
        return 2;
    count = strtoul(arguments[1], NULL, 10);
    bytes = strtoul(arguments[2], NULL, 10);
    uint64_t end_ms = strtoul(arguments[3], NULL, 10);
    if (count > MOST)
        return 2;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&all[i], NULL, share, NULL);
    pthread_barrier_wait(&barrier);
    int highest = -1;
    do {
        free(malloc(bytes + 100));
        for (int i = 0; i < DUPLICATES; i++) {
            int made = dup(STDOUT_FILENO);
            highest = made > highest ? made : highest;
            close(made);
        }
    } while (used_ms() < end_ms);
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(all[i], NULL);
    printf("%d\n", highest);
    return 0;
}
