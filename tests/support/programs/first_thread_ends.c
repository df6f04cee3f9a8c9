/* first_thread_ends.c - ends its first thread, prints a line, and allocates and frees blocks in
 * another thread from then on. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_t first;

__attribute__((noinline)) static void works(void)
{
    for (;;)
        free(malloc(64));
}

static void *go_on(void *nothing)
{
    pthread_join(first, NULL);
    puts("1");
    fflush(stdout);
    works();
    return nothing;
}

int main(void)
{
    pthread_t other;
    first = pthread_self();
    if (pthread_create(&other, NULL, go_on, NULL) != 0)
        return 1;
    pthread_exit(NULL);
}
