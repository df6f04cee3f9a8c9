/* spawn.c - spawn COUNT: calls posix_spawn(), vfork(), system() and popen() COUNT times each, while
 * four threads allocate and free. */
#include "conformance.h"

#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { BUSY = 4 };

extern char **environ;
static atomic_bool over;

static void *allocate_and_free(void *argument)
{
    uint64_t state = (uintptr_t)argument + 1;
    while (!atomic_load(&over)) {
        char *p = malloc(draw_below(&state, 5000) + 1);
        *p = 1;
        free(p);
    }
    return NULL;
}

static bool ended_well(pid_t pid)
{
    int status = 1;
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static bool by_posix_spawn(void)
{
    char *words[] = {"/bin/true", NULL};
    pid_t pid = -1;
    return posix_spawn(&pid, words[0], NULL, NULL, words, environ) == 0 && ended_well(pid);
}

static bool by_vfork(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/true", "/bin/true", (char *)NULL);
        _exit(1);
    }
    return ended_well(pid);
}

static bool by_system(void)
{
    return system("exit 0") == 0;
}

static bool by_popen(void)
{
    char line[16] = "";
    FILE *pipe = popen("echo here", "r");
    bool read_it =
        pipe != NULL && fgets(line, sizeof line, pipe) != NULL && strcmp(line, "here\n") == 0;
    return pipe != NULL && pclose(pipe) == 0 && read_it;
}

int main(int argc, char **argv)
{
    require_cairn();
    bool (*ways[])(void) = {by_posix_spawn, by_vfork, by_system, by_popen};
    int count = argc == 2 ? atoi(argv[1]) : 0;
    pthread_t ids[BUSY];
    for (size_t i = 0; i < BUSY; i++)
        if (pthread_create(&ids[i], NULL, allocate_and_free, (void *)i) != 0)
            return 2;
    int failed = 0;
    for (int i = 0; i < count; i++)
        for (size_t way = 0; way < COUNT(ways); way++)
            failed += !ways[way]();
    atomic_store(&over, true);
    for (size_t i = 0; i < BUSY; i++)
        pthread_join(ids[i], NULL);
    printf("%d failed\n", failed);
    return failed != 0;
}
