/* waits_at_load.c - a library whose constructor waits for a thread. The loader holds its lock while
 * it opens the library, so the thread must not wait for this lock. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 8 };

static void nothing(void)
{
}

static void *work(void *argument)
{
    void *block[BLOCKS]; /* 8 MiB, so that the background thread begins */
    pthread_atfork(NULL, NULL, nothing);
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = malloc(1 << 20);
        if (block[i] != NULL)
            memset(block[i], 1, 1 << 20);
    }
    for (int i = 0; i < BLOCKS; i++)
        free(block[i]);
    return argument;
}

__attribute__((constructor)) static void wait_for_a_thread(void)
{
    pthread_t id;
    if (pthread_create(&id, NULL, work, NULL) != 0 || pthread_join(id, NULL) != 0)
        abort();
}
