/* death.h - dies(): checks that a mistake ends the process with one line that names it. */
#ifndef CAIRN_DEATH_H
#define CAIRN_DEATH_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern void __asan_poison_memory_region(const volatile void *start, size_t bytes)
    __attribute__((weak));

/* Runs `run` in a child. Returns true if the child dies after one line "cairn: …" that contains
 * `words`. A report of the address sanitizer is accepted instead of that line, because the
 * sanitizer may find the mistake before cairn does. */
static bool dies(void (*run)(void), const char *words)
{
    int ends[2];
    fflush(stdout);
    if (pipe(ends) != 0)
        return false;
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        dup2(ends[1], STDERR_FILENO);
        run();
        _exit(0);
    }
    close(ends[1]);
    static char said[64 << 10];
    size_t length = 0;
    for (ssize_t count; (count = read(ends[0], said + length, sizeof said - 1 - length)) > 0;)
        length += (size_t)count;
    said[length] = '\0';
    close(ends[0]);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return false;
    bool died = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    bool by_us = strstr(said, words) != NULL && strstr(said, "cairn: ") == said &&
                 strchr(said, '\n')[1] == '\0';
    bool by_asan = __asan_poison_memory_region != NULL && strstr(said, "use-after-poison") != NULL;
    if (!died || !(by_us || by_asan))
        fprintf(stderr, "the process should die after one line of error; status %#x, output: %s\n",
                (unsigned)status, said);
    return died && (by_us || by_asan);
}

#endif
