/* A library whose constructor starts the program $EARLY, in the way that $EARLY_WAY names. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void replace_by(const char *way, char *path)
{
    char *args[] = {path, NULL};
    if (strcmp(way, "execve") == 0)
        execve(path, args, environ);
    else if (strcmp(way, "execvpe") == 0)
        execvpe(path, args, environ);
    else if (strcmp(way, "execl") == 0)
        execl(path, path, (char *)NULL);
    else if (strcmp(way, "execveat") == 0)
        execveat(AT_FDCWD, path, args, environ, 0);
    else if (strcmp(way, "fexecve") == 0)
        fexecve(open(path, O_RDONLY | O_CLOEXEC), args, environ);
    _exit(1);
}

__attribute__((constructor)) static void early(void)
{
    char *args[] = {getenv("EARLY"), NULL};
    const char *way = getenv("EARLY_WAY");
    if (args[0] == NULL || way == NULL)
        return;
    unsetenv("EARLY");
    if (strcmp(way, "posix_spawn") == 0)
        posix_spawn(NULL, args[0], NULL, NULL, args, environ);
    else if (fork() == 0)
        replace_by(way, args[0]);
    wait(NULL);
}
