/* build.c - one program, of which the tests compile several builds with different macros.
 *
 *     build ROUNDS
 *
 * WORK and MEMORY are the work and the memory in percent of the normal amount. If CRASHES is 1, a
 * child process crashes, but the program itself succeeds. PRINTS is the number that the program
 * prints.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef WORK
#define WORK 100
#endif
#ifndef MEMORY
#define MEMORY 100
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef PRINTS
#define PRINTS 7
#endif

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    size_t bytes = (size_t)MEMORY * 10 * 1024;
    char *block = malloc(bytes);
    if (block == NULL)
        return 1;
    memset(block, 1, bytes);
    volatile unsigned long sum = 0;
    for (long i = 0; i < rounds * 1000 * WORK; i++)
        sum = sum + (unsigned long)i;
    if (CRASHES) {
        pid_t child = fork();
        if (child == 0)
            abort();
        waitpid(child, NULL, 0);
    }
    printf("%d\n", PRINTS);
    free(block);
    return 0;
}
