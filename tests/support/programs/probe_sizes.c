/* probe_sizes.c THREADS [SIZE COUNT]... - for each pair, each thread allocates and frees SIZE bytes
 * COUNT times. If SIZE is 0, the thread computes for about COUNT milliseconds of CPU time instead.
 * The threads wait until all of them run before they begin with the first pair.
 *
 * The program measures once, before the threads start, how many turns of a loop take a millisecond.
 * The threads do not read a clock, because that would disturb the timers of their CPU time: under
 * Linux 6.18, a thread that reads the clock of its CPU time while it computes gets as few as a
 * fifth of the timers' signals. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static void *(*volatile do_malloc)(size_t) = malloc;
static void (*volatile do_free)(void *) = free;

static uint64_t turns_of_ms;
static pthread_barrier_t all_run;

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void compute(uint64_t turns)
{
    for (volatile uint64_t number = 1; turns > 0; turns--)
        number = number * 6364136223846793005 + 1;
}

static void measure_turns(void)
{
    enum { TURNS = 1000000, TRIES = 5 };
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        uint64_t begin = cpu_ns();
        compute(TURNS);
        uint64_t took = cpu_ns() - begin;
        least = took < least ? took : least;
    }
    turns_of_ms = (uint64_t)TURNS * 1000000 / least;
}

static void *work(void *arguments)
{
    pthread_barrier_wait(&all_run);
    for (char **pair = arguments; pair[0] != NULL && pair[1] != NULL; pair += 2) {
        size_t bytes = (size_t)atol(pair[0]);
        for (long count = atol(pair[1]); count > 0 && bytes != 0; count--)
            do_free(do_malloc(bytes));
        if (bytes == 0)
            compute((uint64_t)atol(pair[1]) * turns_of_ms);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[64];
    int count = argc > 1 ? atoi(argv[1]) : 0;
    if (count < 1 || count > 64)
        return 64;
    measure_turns();
    pthread_barrier_init(&all_run, NULL, (unsigned)count);
    for (int i = 1; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, argv + 2) != 0)
            return 1;
    work(argv + 2);
    for (int i = 1; i < count; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
