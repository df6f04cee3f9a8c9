/* self.h - what the probe knows of the calling thread.
 *
 *     guard == SELF_OUTSIDE  <=>  this thread counts, and is not in the allocator
 *     guard == SELF_INSIDE   <=>  it is in the allocator, or in the probe on its behalf: its kernel calls are seen
 *                                 (kernel_calls.h), and what it allocates is not counted
 *     counts                      where it counts, if guard is one of these two; else NULL, or where nobody reads
 *
 * The kernel reads `guard` at every system call of an armed thread, and kills the thread at any other value.
 */
#ifndef CAIRN_PROBE_SELF_H
#define CAIRN_PROBE_SELF_H

#include "base/random.h"
#include "probe/watched.h"
#include "record/profile.h"

enum self_guard {
    SELF_OUTSIDE = 0, /* SYSCALL_DISPATCH_FILTER_ALLOW */
    SELF_INSIDE = 1,  /* SYSCALL_DISPATCH_FILTER_BLOCK */
    SELF_UNKNOWN = 2, /* not begun, as every thread starts */
    SELF_BEGINNING = 3,
    SELF_ENDED = 4, /* its last destructor has run, or there was no room for it */
};

enum self_special {
    SELF_TIMED = 1,
    SELF_WATCHED = 2,
    SELF_EXACT = 4,
    SELF_UNSEEN = 8, /* it was let go on with the guard outside */
};

struct self {
    uint8_t guard;
    uint8_t
        special;  /* of the operation that it is in: SELF_TIMED, SELF_WATCHED; SELF_EXACT: of all */
    bool armed;   /* the kernel dispatches its calls */
    bool calling; /* the kernel, on the allocator's behalf */
    uint8_t kind; /* of the operation that it is in: enum profile_kind */
    uint8_t rounds;       /* of destructors that it has been through */
    uint32_t until_timed; /* allocations */
    bool faults_wanted;   /* of the next timed operation: what it is looked at for, and how */
    bool alone;
    bool counted;
    uintptr_t frame; /* of the function of ours that it is in */
    struct profile_thread *counts;
    uint64_t
        began_ticks; /* the operation that it is in, if timed; and what it did so far in the kernel: */
    uint32_t kernel_calls;
    uint64_t kernel_ticks;
    struct watched watched; /* if SELF_WATCHED: of the block that the operation was given */
    const void *given;      /* and that block */
    uint64_t faults;        /* of the thread, before; then of the operation */
    const void *section;    /* the lock whose critical section is timed; NULL: none */
    uint64_t section_ticks; /* since when */
    uint32_t until_section; /* locks taken */
    uint32_t number;        /* of this thread, never used for another; not 0 */
    struct random random;
    bool has_timer;
    int timer;             /* the kernel's number of it */
    uint64_t timer_cpu_ns; /* when it last told: by the thread's clock … */
    uint64_t timer_ns;     /* … and by everybody's */
    uint8_t counter_slots; /* counters.h */
    int counters[PROFILE_SLOTS];
    uint64_t events[PROFILE_SLOTS]; /* before, then of the operation; by slot */
    uint64_t events_missed;         /* nanoseconds in which they were not counted */
};

extern __thread struct self self __attribute__((visibility("hidden")));

#endif
