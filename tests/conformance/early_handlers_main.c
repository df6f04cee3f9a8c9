/* early_handlers_main.c - early_handlers_main COUNT HOW: forks COUNT times. If HOW is "beside", a
 * thread meanwhile allocates under the lock of early_handlers.c. The program is linked with that
 * library, so the library's constructor runs before those of the program. */
#include "conformance.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { HANGS_AFTER_S = 100 };

void allocate_under_lock(size_t size);

static atomic_bool over;

static void *allocate(void *argument)
{
    uint64_t state = 1;
    while (!atomic_load(&over))
        allocate_under_lock(draw_below(&state, 300000));
    return argument;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int count = argc == 3 ? atoi(argv[1]) : 0;
    bool beside = argc == 3 && strcmp(argv[2], "beside") == 0;
    int failed = 0;
    alarm(HANGS_AFTER_S);
    free(malloc(10));
    if (beside && pthread_create(&thread, NULL, allocate, NULL) != 0)
        return 2;
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(HANGS_AFTER_S);
            free(malloc(20));
            allocate_under_lock(200000);
            _exit(0);
        }
        int status = 1;
        failed += waitpid(child, &status, 0) != child || status != 0;
    }
    atomic_store(&over, true);
    if (beside)
        pthread_join(thread, NULL);
    printf("%d of %d failed\n", failed, count);
    return failed != 0;
}
