/* thread_state.h - the probe's state of the calling thread. Only the thread itself and signal
 * handlers that run on it use this state.
 *
 *     guard == THREAD_OUTSIDE  <=>  operations of this thread are counted, and it is not in the
 *                                   allocator
 *     guard == THREAD_INSIDE   <=>  this thread is in the allocator, or in the probe on behalf of
 *                                   an operation: its system calls are seen (kernel_calls.h), and
 *                                   its allocations are not counted
 *
 * In these two states `counts` is the struct of the probe's file in which the thread counts. There
 * is one exception: if a sandbox refused to turn off dispatch for the ending thread, `counts` is a
 * dummy struct that no reader sees. In other states `counts` is NULL or the dummy.
 *
 * The kernel reads `guard` at every system call of a thread with dispatch (kernel_calls.h), and
 * kills the thread if it finds another value than these two.
 */
#ifndef CAIRN_PROBE_THREAD_STATE_H
#define CAIRN_PROBE_THREAD_STATE_H

#include "base/random.h"
#include "probe/watched.h"
#include "record/profile.h"

enum thread_guard {
    THREAD_OUTSIDE = 0, /* SYSCALL_DISPATCH_FILTER_ALLOW */
    THREAD_INSIDE = 1,  /* SYSCALL_DISPATCH_FILTER_BLOCK */
    THREAD_UNKNOWN = 2, /* not begun: the state of every new thread */
    THREAD_BEGINNING = 3,
    THREAD_ENDED = 4, /* its destructors have run, or the file had no room */
};

/* Reasons why the operation that the thread is in, or its next one, ends on the slow path. Each
 * reason is one bit. */
enum thread_special {
    THREAD_TIMED = 1,   /* the operation is timed */
    THREAD_WATCHED = 2, /* the block to be freed or reallocated is watched */
    THREAD_EXACT = 4,   /* CAIRN_PROBE_PATHS=exact; set in every operation */
    THREAD_UNSEEN = 8,  /* the probe no longer sees the operation's calls */
    THREAD_PAIR = 16,   /* the distance to the last block is noted (layout.h) */
    THREAD_STACK = 32,  /* the call stack is recorded (call_stacks.h) */
};

/* Registers of a function at one of its instructions. The search for its caller begins with them
 * (unwind.h). */
struct unwind_start {
    uintptr_t instruction; /* instruction pointer */
    uintptr_t stack;       /* stack pointer */
    uintptr_t frame;       /* frame pointer: rbp */
};

/* A sampled block that realloc has taken out of the sample. If the realloc fails,
 * call_stacks_restore() puts the block back. */
struct call_stacks_lost {
    uintptr_t start; /* 0: none */
    uint64_t ticks;
    uint64_t bytes;
    double chance;
    uint32_t thread;
    uint32_t allocations;
    uint32_t site;
};

struct thread_state {
    uint8_t guard;    /* enum thread_guard */
    uint8_t special;  /* enum thread_special */
    bool armed;       /* the kernel dispatches this thread's system calls */
    bool yielded;     /* the program has a dispatch of its own (sandbox.c) */
    bool calling;     /* the handler of SIGSYS makes the allocator's call */
    bool asking;      /* the thread is in the probe's malloc_usable_size() call */
    bool forking;     /* the thread is in fork(), with the allocator's locks */
    bool inspecting;  /* see interpose_inspecting.c */
    uint8_t late;     /* THREAD_ENDED: operations within each other */
    uint8_t rounds;   /* rounds of destructors that have run */
    uint8_t function; /* enum profile_function of the present operation */

    /* Number of allocations until the next timed operation. The flags say what is measured in the
     * next timed operation, or in the present one if it is timed. */
    uint32_t until_timed;
    bool faults_wanted; /* the operation's page faults are counted */
    bool alone;         /* the operation is timed with fences around it */
    bool counted;       /* the operation's events are counted (perf_events.h) */

    void *signal_stack;            /* from own_stack_arm(); NULL: none */
    uintptr_t frame;               /* stack pointer in the interposed function */
    struct profile_thread *counts; /* counters of the thread in the probe's file */
    struct live_thread *live;      /* the thread's balance of live bytes (live.h) */

    /* The operation that the thread is in. */
    uint64_t began_ticks;   /* when the operation began, if it is timed */
    uint32_t kernel_calls;  /* number of the operation's system calls so far */
    uint64_t kernel_ticks;  /* time of these system calls */
    struct watched watched; /* data of the block `given`, if THREAD_WATCHED */
    const void *given;      /* block passed to free or realloc */
    /* During the operation: number of the thread's page faults at the operation's beginning. At
     * the end: number of page faults of the operation. */
    uint64_t faults;

    /* The critical section that is being timed (locks.c). */
    const void *section;                /* its lock; NULL: no section is timed */
    uint64_t section_ticks;             /* when the section began */
    struct lock_record *section_record; /* entry of the lock in the file, or NULL */
    bool section_early;                 /* see lock_record.early_sections */
    uint32_t until_section;             /* number of locks until the next timed section */

    uint32_t number; /* number of this thread; never 0, never reused */
    struct random random;

    /* The entry of the thread's last allocation in layout.h's sample. It waits for the distance to
     * the next block. NULL if the last allocation is not in the sample. */
    struct layout_block *layout_entry;
    uintptr_t layout_block; /* address of that allocation's block */
    /* The last tracked block that the thread gave back: 1 + its bytes, and its address. layout_lost
     * is 0 if there is none. */
    uint64_t layout_lost;
    uintptr_t layout_lost_block;

    /* Sampled call stacks (call_stacks.h). `every` is the mean distance of samples in bytes. */
    int64_t until_stack;       /* bytes until the next sample */
    uint64_t next_stack_every; /* `every` when until_stack was drawn */
    uint64_t stack_every;      /* `every` when the present sample was drawn */
    struct call_stacks_lost stack_lost;
    /* The sampled allocation that is being recorded. */
    uintptr_t stack_block;           /* address of the block */
    uint64_t stack_bytes;            /* requested bytes */
    uint64_t stack_ticks;            /* when the recording began */
    struct unwind_start stack_start; /* where the search for the stack begins */

    bool has_timer;        /* the thread has a timer (cpu_timer.h) */
    int timer;             /* kernel's number of this timer */
    uint64_t timer_cpu_ns; /* CPU time of the thread at the timer's last signal */
    uint64_t timer_ns;     /* CLOCK_MONOTONIC at the timer's last signal */

    uint8_t counter_slots;       /* one bit for each slot with an event; see perf_events.h */
    int counters[PROFILE_SLOTS]; /* descriptors of the events */
    /* During the operation: counts of the events at the operation's beginning. At the end: number
     * of events of the operation. */
    uint64_t events[PROFILE_SLOTS];
    uint64_t events_missed; /* time in ns in which the events were not counted */
};

extern __thread struct thread_state thread_state __attribute__((visibility("hidden")));

#endif
