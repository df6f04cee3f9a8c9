/* Prints descriptors and signal state before and after it executes many programs. Some of these
 * cannot be executed. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void show(const char *when)
{
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        printf("%s ", entry->d_name);
    closedir(folder);
    char line[200];
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "Sig", 3) == 0 && strncmp(line, "SigQ", 4) != 0)
            fputs(line, stdout);
    fclose(status);
    puts(when);
}

int main(int argc, char **argv)
{
    printf("errno %d\n", errno);
    show("start");
    char *args[] = {argv[1], NULL};
    for (int i = 0; i < 50; i++) {
        execv("/nowhere", args);
        execvp("nothing-there", args);
        execv(argv[2], args);
        posix_spawn(NULL, argv[1], NULL, NULL, args, environ);
    }
    while (wait(NULL) > 0) {
    }
    show("end");
}
