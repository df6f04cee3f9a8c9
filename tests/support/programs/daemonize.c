/* daemonize.c - goes into the background in one of three ways, and allocates there.
 *
 *     daemonize WAY ROUNDS
 *
 * WAY is "twice" (fork, new session, fork again: the classical way), "daemon" (daemon(3)) or
 * "child" (one fork; the parent ends). The process that was started ends at once. The other one
 * allocates and frees a block in each of ROUNDS rounds. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void go_into_background(const char *way)
{
    if (strcmp(way, "daemon") == 0) {
        if (daemon(0, 0) != 0)
            _exit(1);
        return;
    }
    pid_t first = fork();
    if (first != 0) {
        if (strcmp(way, "twice") == 0)
            waitpid(first, NULL, 0);
        _exit(0);
    }
    setsid();
    if (strcmp(way, "twice") == 0 && fork() != 0)
        _exit(0);
    for (int fd = 0; fd < 3; fd++)
        close(fd);
}

int main(int argc, char **argv)
{
    static char *live[1000];
    if (argc != 3)
        return 2;
    go_into_background(argv[1]);
    unsigned seed = 1;
    for (long i = atol(argv[2]); i > 0; i--) {
        seed = seed * 1103515245 + 12345;
        size_t slot = (seed >> 16) % 1000;
        free(live[slot]);
        live[slot] = malloc(16 + (seed >> 8) % 500);
    }
    _exit(0);
}
