/* self.h - what the probe knows about the calling thread. Only that thread, and signal handlers
 * that run on it, use it.
 *
 *     guard == SELF_OUTSIDE  <=>  this thread counts, and is not in the allocator
 *     guard == SELF_INSIDE   <=>  it is in the allocator, or in the probe on its behalf: its
 *                                 system calls are seen (kernel_calls.h), and its allocations
 *                                 are not counted
 *
 * In these two states `counts` is the thread's place in the file. It is a struct that is never
 * read, if a sandbox refused to disarm the thread at its end. In other states `counts` is NULL or
 * that struct.
 *
 * The kernel reads `guard` at every system call of an armed thread, and kills the thread if it
 * finds another value than these two.
 */
#ifndef CAIRN_PROBE_SELF_H
#define CAIRN_PROBE_SELF_H

#include "base/random.h"
#include "probe/watched.h"
#include "record/profile.h"

enum self_guard {
    SELF_OUTSIDE = 0, /* SYSCALL_DISPATCH_FILTER_ALLOW */
    SELF_INSIDE = 1,  /* SYSCALL_DISPATCH_FILTER_BLOCK */
    SELF_UNKNOWN = 2, /* not begun: the state of every new thread */
    SELF_BEGINNING = 3,
    SELF_ENDED = 4, /* destructors have run, or the file had no room */
};

/* Bits: why the operation that the thread is in, or its next one, leaves through the slow path. */
enum self_special {
    SELF_TIMED = 1,   /* it is timed */
    SELF_WATCHED = 2, /* the block that it was given is a watched one */
    SELF_EXACT = 4,   /* the owners of all blocks are noted: set always */
    SELF_UNSEEN = 8,  /* the guard was set outside in the middle of it */
};

struct self {
    uint8_t guard;   /* enum self_guard */
    uint8_t special; /* enum self_special */
    bool armed;      /* the kernel dispatches this thread's calls */
    bool calling;    /* in a system call made for the allocator */
    uint8_t kind;    /* of its operation: enum profile_kind */
    uint8_t rounds;  /* of destructors that have run */

    /* Allocations until the next one is timed, and what is measured in that one. */
    uint32_t until_timed;
    bool faults_wanted; /* its page faults */
    bool alone;         /* its time, with fences around it */
    bool counted;       /* its events (counters.h) */

    uintptr_t frame;               /* stack pointer in our function */
    struct profile_thread *counts; /* its place in the file */

    /* The operation that the thread is in. */
    uint64_t began_ticks;   /* when it began, if it is timed */
    uint32_t kernel_calls;  /* its system calls so far */
    uint64_t kernel_ticks;  /* their time */
    struct watched watched; /* if SELF_WATCHED: about `given` */
    const void *given;      /* block passed to free or realloc */
    uint64_t faults;        /* of the thread before it; then its own */

    /* Sampled critical sections (locks.c). */
    const void *section;    /* lock whose section is timed, or NULL */
    uint64_t section_ticks; /* when that section began */
    uint32_t until_section; /* locks until the next timed section */

    uint32_t number; /* of this thread; never 0, never reused */
    struct random random;

    bool has_timer;        /* it has a timer (cpu_timer.h) */
    int timer;             /* the kernel's number of that timer */
    uint64_t timer_cpu_ns; /* last signal by the thread's CPU clock */
    uint64_t timer_ns;     /* the same by CLOCK_MONOTONIC */

    uint8_t counter_slots;          /* counters.h */
    int counters[PROFILE_SLOTS];    /* descriptors of its events */
    uint64_t events[PROFILE_SLOTS]; /* before; then of the operation */
    uint64_t events_missed;         /* ns in which they did not run */
};

extern __thread struct self self __attribute__((visibility("hidden")));

#endif
