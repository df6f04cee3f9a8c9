/* Has two threads that allocate. The first one forks again and again. Its memory is large, so that
 * a fork takes most of the time. Ends at SIGTERM. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *allocate(void *nothing)
{
    for (;;) {
        free(malloc(1000));
        usleep(1000);
    }
    return nothing;
}

int main(void)
{
    const size_t bytes = (size_t)300 << 20;
    pthread_t thread;
    char *memory = malloc(bytes);
    if (memory == NULL || pthread_create(&thread, NULL, allocate, NULL) != 0)
        return 1;
    memset(memory, 1, bytes);
    for (;;) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        if (child < 0 || waitpid(child, NULL, 0) != child)
            return 2;
        free(malloc(100));
    }
}
