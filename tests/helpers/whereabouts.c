/* whereabouts.c - works so long in each place that a processor can be in, and prints how long that was.
 *
 *     whereabouts MS          CPU time in each place; prints "own calls kernel program" in nanoseconds
 *     with -shared            the library that plays the allocator, LIBRARY_ONLY defined
 *
 * In the library: work of its own and libc's memset for it (own), read(2) of /dev/zero for it (calls). In the program: work,
 * libc's memset, and a child that does the same (program), page faults and read(2) (kernel).
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)1 << 18)
#define FRESH_BYTES  ((size_t)4 << 20)

enum { WORK, FILL, READ, TOUCH };

/* One turn of a few hundred microseconds. */
#ifdef LIBRARY_ONLY
void library_turn(int what, char *buffer, int zeros)
#else
void library_turn(int what, char *buffer, int zeros);
static void program_turn(int what, char *buffer, int zeros)
#endif
{
    static volatile uint64_t sink;
    if (what == FILL) {
        for (int i = 0; i < 8; i++)
            memset(buffer, i, BUFFER_BYTES);
    } else if (what == READ) {
        if (read(zeros, buffer, BUFFER_BYTES) != (ssize_t)BUFFER_BYTES)
            abort();
    } else if (what == TOUCH) {
        char *fresh = mmap(NULL, FRESH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t at = 0; at < FRESH_BYTES; at += 4096)
            fresh[at] = 1;
        munmap(fresh, FRESH_BYTES);
    } else {
        uint64_t state = 88172645463325252u;
        for (int i = 0; i < 100000; i++) {
            state ^= state << 13; /* xorshift64, Marsaglia 2003 */
            state ^= state >> 7;
            state ^= state << 17;
        }
        sink = state;
    }
}

#ifndef LIBRARY_ONLY
static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t spend(void (*turn)(int, char *, int), int what, uint64_t ns)
{
    static char buffer[BUFFER_BYTES];
    int zeros = open("/dev/zero", O_RDONLY);
    uint64_t began = cpu_ns();
    while (cpu_ns() - began < ns)
        turn(what, buffer, zeros);
    close(zeros);
    return cpu_ns() - began;
}

int main(int argc, char **argv)
{
    uint64_t ns = (uint64_t)(argc > 1 ? atol(argv[1]) : 100) * 1000000u;
    uint64_t own = spend(library_turn, WORK, ns) + spend(library_turn, FILL, ns);
    uint64_t calls = spend(library_turn, READ, ns);
    uint64_t kernel = spend(program_turn, TOUCH, ns) + spend(program_turn, READ, ns);
    uint64_t program = spend(program_turn, WORK, ns) + spend(program_turn, FILL, ns);
    pid_t child = fork();
    if (child == 0) {
        spend(program_turn, WORK, ns);
        _exit(0);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child)
        return 1;
    program += ns;
    printf("%llu %llu %llu %llu\n", (unsigned long long)own, (unsigned long long)calls,
           (unsigned long long)kernel, (unsigned long long)program);
    return 0;
}
#endif
