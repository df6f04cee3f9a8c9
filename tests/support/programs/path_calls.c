/* path_calls.c NEW REUSED [CHILDREN THREADS] - for each of the sizes 100, 5000 and 50000, allocates
 * NEW blocks, frees the last one and allocates it again REUSED times, and resizes it twice. Does
 * the same in CHILDREN forked children, one after the other, and in THREADS threads. The children
 * differ: child number N, counted from 0, allocates N more blocks of each size. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *(*volatile do_malloc)(size_t) = malloc;
static void *(*volatile do_realloc)(void *, size_t) = realloc;
static void (*volatile do_free)(void *) = free;
static long fresh, reused;

static void *work(void *argument)
{
    static const size_t sizes[] = {100, 5000, 50000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *block = NULL;
        for (long n = 0; n < fresh; n++)
            block = do_malloc(sizes[i]);
        for (long n = 0; n < reused; n++) {
            do_free(block);
            block = do_malloc(sizes[i]);
        }
        block = do_realloc(block, sizes[i] - 1);
        block = do_realloc(block, sizes[i]);
        block[0] = 1;
    }
    return argument;
}

int main(int count, char **words)
{
    long children = count > 3 ? atol(words[3]) : 0;
    long threads = count > 4 ? atol(words[4]) : 0;
    pthread_t made[16];
    fresh = atol(words[1]);
    reused = atol(words[2]);
    for (long i = 0; i < children; i++) {
        if (fork() == 0) {
            fresh += i;
            work(NULL);
            _exit(0);
        }
        wait(NULL);
    }
    for (long i = 0; i < threads && i < 16; i++)
        pthread_create(&made[i], NULL, work, NULL);
    for (long i = 0; i < threads && i < 16; i++)
        pthread_join(made[i], NULL);
    if (children == 0 && threads == 0)
        work(NULL);
    return 7;
}
