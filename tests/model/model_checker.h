/* model_checker.h - runs a few threads of the allocator in every order that makes a difference.
 *
 * The sources under test are compiled unchanged, with the calls that the thread sanitizer puts
 * before every memory access. memory.c implements these calls in place of the sanitizer. A thread
 * is a coroutine. It stops before each step, which is an atomic access or the taking of a lock. The
 * explorer then chooses the thread that goes on:
 *
 *     two orders of the same steps are both run if they differ in the order of accesses to one
 *     object, of which one writes (dynamic partial-order reduction, with source sets and sleep
 *     sets: Abdulla and others, POPL 2014)
 *     plain accesses are no steps. If nothing orders two plain accesses to a byte, of which one
 *     writes, the execution fails (memory.h)
 *     a load may also return a value that was replaced already, as far as the C memory model allows
 *     (memory.h), up to `stale_most` times in one execution; with 0, the steps are sequentially
 *     consistent
 *
 * Every execution starts from the same memory and is determined by its schedule alone, so that a
 * failure can be replayed.
 */
#ifndef CAIRN_MODEL_CHECKER_H
#define CAIRN_MODEL_CHECKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODEL_CHECKER_THREADS_MAX = 4 };

struct model_checker_plan {
    const char *name;
    unsigned threads;
    void (*setup)(void); /* called once; every execution begins with its result */
    /* Called before every execution; restores untracked memory. */
    void (*begin)(void);
    void (*body)(unsigned thread);  /* the code of a thread */
    void (*enter)(unsigned thread); /* called before a thread goes on */
    void (*leave)(unsigned thread); /* called when a thread stops; saves thread-locals */
    void (*check)(void);            /* called after every execution that ran to its end */
    unsigned stale_most;            /* limit on stale loads in one execution */
    uint64_t executions_most;       /* the exploration stops after this number */
    bool every_order;               /* runs all orders, for tests of the explorer */
    bool quiet;                     /* a failure is expected, and not printed */
    /* The one schedule to run, in the form that a failure prints; NULL: all schedules. */
    const char *replay;
};

struct model_checker_result {
    uint64_t executions;
    uint64_t cut;     /* executions abandoned because they equal an earlier one */
    unsigned longest; /* steps of the longest execution */
    bool exhausted;
    bool failed;
};

/* Runs all executions of the plan. At the first failure it prints the schedule and stops. */
struct model_checker_result model_checker_explore(const struct model_checker_plan *plan);

/* --- functions for the threads, and for code that they call ----------------------------------- */

/* Returns the current thread, or -1 in setup and check. */
int model_checker_self(void);

/* Ends the execution and the exploration as failed, with a message. */
_Noreturn void model_checker_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Adds a line to the printed schedule. `text` must live as long as the program. */
void model_checker_note(const char *text, const void *about);

/* Stops all other threads forever, at their present steps. */
void model_checker_stop_others(void);

/* --- functions that the program under test provides, for the printed schedule ----------------- */

/* The first function writes a name for the object at `address`. The second one writes the meaning
 * of `value` in that object. */
void model_checker_describe(const void *address, char *name, size_t bytes);
void model_checker_describe_value(const void *address, uint64_t value, char *text, size_t bytes);
const char *model_checker_thread_name(unsigned thread);

#endif
