/* probe_late.c N FREES - each of N threads frees NULL FREES times, in the last round of thread
 * destructors. The probe's own destructor runs earlier, so the probe no longer counts for the
 * thread. */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_key_t key;
static int frees;

/* The value of the key is the number of the present round of destructors, from 1. */
static void on_end(void *value)
{
    size_t rounds = (size_t)value;
    if (rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(key, (void *)(rounds + 1));
        return;
    }
    void *volatile none = NULL;
    for (int i = 0; i < frees; i++)
        free(none);
}

static void *work(void *nothing)
{
    void *volatile block = malloc(100);
    free(block);
    pthread_setspecific(key, (void *)1);
    return nothing;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    frees = argc > 2 ? atoi(argv[2]) : 0;
    /* The probe starts at this first allocation, and creates its pthread key. So its key is older
     * than `key`, and its destructor runs before on_end() in each round. */
    void *volatile block = malloc(1);
    free(block);
    pthread_key_create(&key, on_end);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) != 0)
            return 1;
        pthread_join(thread, NULL);
    }
    puts("done");
    return 0;
}
