/* closes.c - closes [HANDLER] LIBRARY…: opens the libraries and closes them again, in the same
 * order. With the word HANDLER, sets a handler of SIGSEGV before. Prints the action for SIGSEGV
 * that is left: "default", "before" for its own handler, or "other". */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 8 };

static void handler(int number)
{
    (void)number;
}

int main(int count, char **arguments)
{
    void *opened[MOST];
    int first = 1;
    if (count > 1 && strcmp(arguments[1], "HANDLER") == 0) {
        signal(SIGSEGV, handler);
        first = 2;
    }
    for (int i = first; i < count && i < MOST; i++) {
        opened[i] = dlopen(arguments[i], RTLD_NOW);
        if (opened[i] == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
    }
    for (int i = first; i < count && i < MOST; i++)
        dlclose(opened[i]);
    struct sigaction now;
    if (sigaction(SIGSEGV, NULL, &now) != 0)
        return 1;
    puts(now.sa_handler == SIG_DFL ? "default" : now.sa_handler == handler ? "before" : "other");
    return 0;
}
