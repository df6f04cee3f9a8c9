/* probe_gaps.c THREADS BLOCKS - allocates small blocks and keeps them. Each of THREADS threads, one
 * after the other, gets BLOCKS blocks. If THREADS is 0, main gets them. */
#include <pthread.h>
#include <stdlib.h>

static int blocks;

static void *allocate(void *nothing)
{
    for (int i = 0; i < blocks; i++) {
        void *volatile block = malloc(64);
        if (block == NULL)
            exit(1);
    }
    return nothing;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 0;
    blocks = argc > 2 ? atoi(argv[2]) : 0;
    if (threads == 0)
        allocate(NULL);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, allocate, NULL) != 0 || pthread_join(thread, NULL) != 0)
            return 1;
    }
    return 0;
}
