/* calls_at_end.c - an allocator whose last action is a jump to libc, and a program that uses it.
 *
 *     calls_at_end MS     fills a buffer for MS of CPU time through the allocator, and for MS/2 by
 *                         itself. Prints both times in nanoseconds
 *
 * Compiled with -shared and -DLIBRARY_ONLY this file is the allocator. Its pvalloc() jumps to
 * memset(), so its own address is not on the stack while memset() works.
 */
#define _GNU_SOURCE 1
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUFFER_BYTES ((size_t)1 << 18)

void *pvalloc(size_t bytes);

#ifdef LIBRARY_ONLY
static char buffer[BUFFER_BYTES];

__attribute__((optimize("optimize-sibling-calls"))) void *pvalloc(size_t bytes)
{
    return memset(buffer, 1, bytes);
}
#else
static char buffer[BUFFER_BYTES];

static void *fill(size_t bytes)
{
    return memset(buffer, 1, bytes);
}

static unsigned long long cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec;
}

int main(int argc, char **argv)
{
    unsigned long long ns = (unsigned long long)(argc > 1 ? atol(argv[1]) : 100) * 1000000u;
    unsigned long long began = cpu_ns(), at;
    /* Each function is called by its name, because a call by a pointer names no function. */
    while (cpu_ns() - began < ns)
        for (int i = 0; i < 8; i++)
            pvalloc(BUFFER_BYTES);
    at = cpu_ns();
    while (cpu_ns() - at < ns / 2)
        for (int i = 0; i < 8; i++)
            fill(BUFFER_BYTES);
    printf("%llu %llu\n", at - began, cpu_ns() - at);
    return 0;
}
#endif
