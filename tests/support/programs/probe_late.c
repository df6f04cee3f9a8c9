/* probe_late.c - each of N threads frees NULL as often as the second argument says, after the probe
 * has stopped counting for it: in the last round of destructors, after the probe's destructor. */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_key_t key;
static int frees;

/* The value of the key is the number of rounds that have run, plus 1. */
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
    void *volatile block = malloc(1); /* the probe begins, and makes its key before ours */
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
