/* fork.c - fork COUNT FORKERS: FORKERS threads fork COUNT times in total. Meanwhile eight other
 * threads allocate blocks, and free their own and each other's blocks. Every child frees the blocks
 * that it inherited, allocates, and must end. */
#include "conformance.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { BUSY = 8, SHARED = 256, INHERITED = 64 };

static _Atomic(void *) shared[SHARED];
static atomic_bool over;
static _Atomic unsigned long bad;
static unsigned long forks_each;

static size_t any_size(uint64_t *state)
{
    return draw(state) >> 58 == 0 ? draw_below(state, 200000) : draw_below(state, 2000);
}

static void *allocate_and_free(void *argument)
{
    uint64_t state = (uintptr_t)argument + 1;
    for (unsigned turn = 1; !atomic_load(&over); turn++) {
        if (turn % 256 == 0)
            usleep(200); /* leaves processor time to the children */
        char *p = malloc(any_size(&state));
        if (p != NULL && malloc_usable_size(p) > 0)
            *p = 1;
        free(atomic_exchange(&shared[draw_below(&state, SHARED)], p));
    }
    return NULL;
}

static _Noreturn void child(void **inherited, uint64_t state)
{
    alarm(30); /* ends a child that hangs at a lock */
    for (size_t i = 0; i < INHERITED; i++)
        free(inherited[i]);
    for (size_t i = 0; i < SHARED; i++) /* also blocks of threads that only the parent has */
        free(atomic_exchange(&shared[i], NULL));
    for (int i = 0; i < 300; i++) {
        size_t size = any_size(&state);
        char *p = malloc(size);
        if (p == NULL)
            _exit(1);
        memset(p, 1, size);
        free(p);
    }
    if (malloc_trim(0) < 0)
        _exit(1);
    _exit(0);
}

static void *fork_on(void *argument)
{
    uint64_t state = (uintptr_t)argument + 99;
    for (unsigned long i = 0; i < forks_each; i++) {
        void *inherited[INHERITED];
        for (size_t k = 0; k < INHERITED; k++)
            inherited[k] = malloc(any_size(&state));
        pid_t pid = fork();
        if (pid == 0)
            child(inherited, state);
        int status = 1;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            atomic_fetch_add(&bad, 1);
        for (size_t k = 0; k < INHERITED; k++)
            free(inherited[k]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    require_cairn();
    if (argc != 3)
        return 2;
    size_t forkers = strtoul(argv[2], NULL, 10);
    forks_each = strtoul(argv[1], NULL, 10) / forkers;
    pthread_t busy[BUSY];
    pthread_t forking[64];
    for (size_t i = 0; i < BUSY; i++)
        if (pthread_create(&busy[i], NULL, allocate_and_free, (void *)i) != 0)
            return 2;
    for (size_t i = 1; i < forkers; i++)
        if (pthread_create(&forking[i], NULL, fork_on, (void *)i) != 0)
            return 2;
    fork_on(NULL);
    for (size_t i = 1; i < forkers; i++)
        pthread_join(forking[i], NULL);
    atomic_store(&over, true);
    for (size_t i = 0; i < BUSY; i++)
        pthread_join(busy[i], NULL);
    printf("%lu children failed\n", bad);
    return bad != 0;
}
