/* probe_requests.c - another process sends the signal by which Cairn asks for a trim. Prints "went
 * on" at the end. A program that hangs is killed by SIGALRM. The argument selects what the program
 * does meanwhile:
 *
 *     mallinfo, mallinfo2, info, stats     calls this function of glibc again and again
 *     inspects   calls inspect_allocator(), a function of the allocator
 *     pairs      allocates and frees
 *     reads      waits in read() for a byte that comes after the signal
 */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REQUEST = 0x6d697274, REQUESTS = 20, BLOCKS = 4000 };

static pid_t child;

/* Sends the requests, each 2 ms after the one before. Then writes a byte. */
static void begin_requests(int to)
{
    pid_t parent = getpid();
    child = fork();
    if (child != 0)
        return;
    for (int i = 0; i < REQUESTS; i++) {
        const union sigval value = {.sival_int = REQUEST};
        usleep(2000);
        sigqueue(parent, SIGSYS, value);
    }
    usleep(2000);
    _exit(write(to, "x", 1) != 1);
}

static int is_over(void)
{
    int status;
    return waitpid(child, &status, WNOHANG) != 0;
}

/* Makes free blocks between others, so that glibc's functions take some time. */
static void fragment(void)
{
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(2000);
    for (int i = 0; i < BLOCKS; i += 2)
        free(blocks[i]);
}

static void call(const char *what, FILE *nowhere)
{
    void (*inspect)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "inspect_allocator");
    if (strcmp(what, "mallinfo") == 0)
        (void)mallinfo();
    else if (strcmp(what, "mallinfo2") == 0)
        (void)mallinfo2();
    else if (strcmp(what, "info") == 0)
        malloc_info(0, nowhere);
    else if (strcmp(what, "stats") == 0)
        malloc_stats();
    else if (strcmp(what, "inspects") == 0 && inspect != NULL)
        inspect();
    else
        free(malloc(100));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    FILE *nowhere = fopen("/dev/null", "w");
    int pipes[2];
    char byte;
    if (pipe(pipes) != 0 || nowhere == NULL)
        return 2;
    fragment();
    alarm(5);
    begin_requests(pipes[1]);
    if (strcmp(what, "reads") == 0) {
        if (read(pipes[0], &byte, 1) != 1)
            return 3;
    } else {
        while (!is_over())
            call(what, nowhere);
    }
    puts("went on");
    return 0;
}
