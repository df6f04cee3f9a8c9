/* Makes a child that executes a program in the way that the first argument names, such as "vfork".
 * Prints the result. If TELL_CHILD is set, prints the child's process id before it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int run(const char *form, char *target)
{
    char *argv[] = {target, "one", "two", NULL};
#define IS(name) (strcmp(form, name) == 0)
    if (IS("execve"))
        return execve(target, argv, environ);
    if (IS("execv"))
        return execv(target, argv);
    if (IS("execvp"))
        return execvp(target, argv);
    if (IS("execvpe"))
        return execvpe(target, argv, environ);
    if (IS("execl"))
        return execl(target, target, "one", "two", (char *)NULL);
    if (IS("execle"))
        return execle(target, target, "one", "two", (char *)NULL, environ);
    if (IS("execlp"))
        return execlp(target, target, "one", "two", (char *)NULL);
    if (IS("execveat"))
        return execveat(AT_FDCWD, target, argv, environ, 0);
    if (IS("execveat-open"))
        return execveat(open(target, O_PATH | O_CLOEXEC), "", argv, environ, AT_EMPTY_PATH);
    if (IS("fexecve"))
        return fexecve(open(target, O_RDONLY | O_CLOEXEC), argv, environ);
    if (IS("no-environment"))
        return execve(target, argv, NULL);
    if (IS("no-new-privileges"))
        return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), execv(target, argv);
    if (IS("other-user"))
        return setegid(65534) + seteuid(65534), execv(target, argv);
    if (IS("overwritten-environment")) {
        char *copy[4096] = {NULL};
        for (int i = 0; environ[i] != NULL; i++)
            copy[i] = strdup(environ[i]);
        for (int i = 0; environ[i] != NULL; i++)
            memset(environ[i], 'x', strlen(environ[i]));
        environ = NULL;
        return execve(target, argv, copy);
    }
    abort();
}

int main(int argc, char **argv)
{
    char *form = argv[1], *target = argv[2], *args[] = {target, "one", "two", NULL};
    pid_t child = 0;
    int status = 0, error = 0;
    errno = 77;
    if (IS("posix_spawn"))
        error = posix_spawn(&child, target, NULL, NULL, args, environ);
    else if (IS("posix_spawnp"))
        error = posix_spawnp(&child, target, NULL, NULL, args, environ);
    else if (IS("posix_spawn-anonymous"))
        error = posix_spawn(NULL, target, NULL, NULL, args, environ);
    else if (IS("vfork")) {
        if ((child = vfork()) == 0) {
            execve(target, args, environ);
            _exit(errno);
        }
    } else if (IS("vfork-search")) {
        if ((child = vfork()) == 0) {
            execvp(target, args);
            _exit(errno);
        }
    } else if ((child = fork()) == 0) {
        run(form, target);
        _exit(errno);
    }
    int after = errno;
    wait(&status);
    if (getenv("TELL_CHILD") != NULL)
        printf("%d ", child);
    printf("%d %d %d\n", error, after, status);
    return argc == 0;
}
