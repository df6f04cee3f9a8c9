/* A library whose constructor starts a program. */
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

__attribute__((constructor)) static void early(void)
{
    char *args[] = {getenv("EARLY"), NULL};
    if (args[0] == NULL)
        return;
    unsetenv("EARLY");
    posix_spawn(NULL, args[0], NULL, NULL, args, environ);
    wait(NULL);
}
