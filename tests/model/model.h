/* model.h - runs a few threads of the allocator in every order that makes a difference.
 *
 * The sources under test are compiled as they are, but for the calls that the thread sanitizer puts before every access
 * to memory; memory.c answers these calls in the sanitizer's place. A thread is a coroutine. It stops before each
 * atomic access and each lock that it takes, which is a step, and the explorer says who takes the next one:
 *
 *     two orders of the same steps are both run if they differ in who came first to the same object, one of them
 *     writing (dynamic partial-order reduction, with source sets and sleep sets: Abdulla and others, POPL 2014)
 *     plain accesses are no steps: two that no order holds apart are a failure by themselves (memory.h)
 *     a load may also return what a store has already replaced, as far as the C memory model allows it (memory.h), as
 *     often as `stale_most` says in one execution; of 0, the steps are sequentially consistent
 *
 * Every execution starts from the same memory and is decided by its schedule alone, so that a failure can be replayed.
 */
#ifndef CAIRN_MODEL_H
#define CAIRN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODEL_THREADS_MAX = 4 };

struct model_plan {
    const char *name;
    unsigned threads;
    void (*setup)(void); /* once; what it writes is there at the start of every execution */
    void (*begin)(void); /* before every execution: puts back what lies outside of tracked memory */
    void (*body)(unsigned thread);  /* what a thread does */
    void (*enter)(unsigned thread); /* before a thread goes on ... */
    void (*leave)(
        unsigned thread);     /* ... and when it stops: puts what is thread-local in its place */
    void (*check)(void);      /* after every execution in which no thread is left */
    unsigned stale_most;      /* loads in one execution that may return what is no longer there */
    uint64_t executions_most; /* then it gives up */
    bool every_order;         /* also those that make no difference, for tests of the explorer */
    bool quiet;               /* a failure is expected, and not printed */
    const char *replay;       /* the one schedule to run, as a failure printed it; NULL: all */
};

struct model_result {
    uint64_t executions;
    uint64_t cut;     /* begun, and found to be equal to an earlier one */
    unsigned longest; /* steps */
    bool exhausted;
    bool failed;
};

/* Prints the schedule of the first failure, and ends there. */
struct model_result model_explore(const struct model_plan *plan);

/* --- for the threads, and what they call --------------------------------------------------------------------- */

/* The thread that runs; -1 in setup and check. */
int model_self(void);

/* Ends the execution, and the exploration: says what was wrong. */
_Noreturn void model_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A line for the printed schedule; `text` lives as long as the program. */
void model_note(const char *text, const void *about);

/* Where they are, all other threads stop for ever. */
void model_stop_others(void);

/* --- for the printed schedule: the world under test tells how its things are called ---------------------------- */

/* Writes a name of what is at `address`, and what `value` there means. */
void world_describe(const void *address, char *name, size_t bytes);
void world_describe_value(const void *address, uint64_t value, char *text, size_t bytes);
const char *world_thread_name(unsigned thread);

#endif
