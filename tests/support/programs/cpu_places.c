/* cpu_places.c - works for a given time in each kind of place that can use CPU time: the library,
 * the program and the kernel. Prints how long it worked in each.
 *
 *     cpu_places MS                   uses MS of CPU time in each place; prints "own calls faults
 *                                     others program" in nanoseconds
 *     cpu_places MS short             starts children and threads until they have worked MS in the
 *                                     library. Each works 0.2 to 0.6 ms there, and then half as
 *                                     long in the program. Prints "own program"
 *     cpu_places MS calls             makes short system calls in the library for MS; prints the
 *                                     nanoseconds
 *     cpu_places COUNT sleeps         makes the program sleep COUNT times for a short time
 *     cpu_places COUNT library-sleeps     makes the library sleep in the same way
 *
 * Compiled with -shared and -DLIBRARY_ONLY this file is the library, which stands for the
 * allocator.
 *
 * The library works itself and calls libc's memset (own), and calls read(2) of /dev/zero (calls).
 * The program works, calls libc's memset, and has a child that works (program). The program also
 * causes page faults (faults) and calls read(2) (others).
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)1 << 18)
#define FRESH_BYTES  ((size_t)4 << 20)

enum { WORK, FILL, READ, TOUCH, SLEEP, CALL };

/* Works once, in the way that `what` selects. This takes a few hundred microseconds, except for
 * SLEEP. */
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
        for (int i = 0; i < 16; i++) {
            if (read(zeros, buffer, BUFFER_BYTES) != (ssize_t)BUFFER_BYTES)
                abort();
        }
    } else if (what == TOUCH) {
        /* The munmap is a system call and no page fault, but it takes only a small part of the
         * time. */
        char *fresh =
            mmap(NULL, FRESH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t at = 0; at < FRESH_BYTES; at += 4096)
            fresh[at] = 1;
        munmap(fresh, FRESH_BYTES);
    } else if (what == SLEEP) {
        usleep(1);
    } else if (what == CALL) {
        for (int i = 0; i < 1000; i++)
            syscall(SYS_getppid);
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

/* Works twice as long in the library as in the program. */
static void *live_shortly(void *of)
{
    uint64_t *ns = of;
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    uint64_t began = (uint64_t)now.tv_nsec, at[2] = {0, 0}, wanted_ns = ns[2];
    for (int where = 0; where < 2; where++) {
        do {
            (where == 0 ? library_turn : program_turn)(WORK, NULL, 0);
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
            at[where] = (uint64_t)now.tv_nsec - began;
        } while (at[where] < (where == 0 ? wanted_ns : at[0] + wanted_ns / 2));
    }
    ns[0] = at[0];
    ns[1] = at[1] - at[0];
    return NULL;
}

static int live_shortly_all(uint64_t wanted_ns)
{
    uint64_t *ns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t own = 0, program = 0;
    for (int turn = 0; own < wanted_ns; turn++) {
        pthread_t thread;
        ns[2] = 200000 + (uint64_t)(turn * 79 % 401) * 1000; /* avoids a regular period */
        if (turn % 2 == 0) {
            pid_t child = fork();
            if (child == 0) {
                live_shortly(ns);
                _exit(0);
            }
            waitpid(child, NULL, 0);
        } else if (pthread_create(&thread, NULL, live_shortly, ns) != 0 ||
                   pthread_join(thread, NULL) != 0) {
            return 1;
        }
        own += ns[0];
        program += ns[1];
    }
    printf("%llu %llu\n", (unsigned long long)own, (unsigned long long)program);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[2] : "";
    if (strstr(what, "sleeps") != NULL) {
        for (long left = atol(argv[1]); left > 0; left--)
            (*what == 'l' ? library_turn : program_turn)(SLEEP, NULL, 0);
        return 0;
    }
    uint64_t ns = (uint64_t)(argc > 1 ? atol(argv[1]) : 100) * 1000000u;
    if (strcmp(what, "short") == 0)
        return live_shortly_all(ns);
    if (strcmp(what, "calls") == 0) {
        printf("%llu\n", (unsigned long long)spend(library_turn, CALL, ns));
        return 0;
    }
    uint64_t own = spend(library_turn, WORK, ns) + spend(library_turn, FILL, ns);
    uint64_t calls = spend(library_turn, READ, ns);
    uint64_t faults = spend(program_turn, TOUCH, ns), others = spend(program_turn, READ, ns);
    uint64_t program = spend(program_turn, WORK, ns) + spend(program_turn, FILL, ns);
    pid_t child = fork();
    if (child == 0) {
        spend(program_turn, WORK, ns);
        _exit(0);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child)
        return 1;
    program += ns;
    printf("%llu %llu %llu %llu %llu\n", (unsigned long long)own, (unsigned long long)calls,
           (unsigned long long)faults, (unsigned long long)others, (unsigned long long)program);
    return 0;
}
#endif
