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
    THREAD_ENDED = 4, /* destructors have run, or the file had no room */
};

/* Reasons why the operation that the thread is in, or its next one, ends on the slow path. Each
 * reason is one bit. */
enum thread_special {
    THREAD_TIMED = 1,   /* the operation is timed */
    THREAD_WATCHED = 2, /* the block to be freed or reallocated is watched */
    THREAD_EXACT = 4,   /* CAIRN_PROBE_PATHS=exact; set in every operation */
    THREAD_UNSEEN = 8,  /* the probe no longer sees the operation's calls */
    /* the distance of the next block to the last one is noted (layout.h) */
    THREAD_PAIR = 16,
    /* the call stack of the allocation is recorded (call_stacks.h) */
    THREAD_STACK = 32,
};

/* Where a function was left: enough to find its caller (unwind.h). */
struct unwind_start {
    uintptr_t instruction;
    uintptr_t stack; /* stack pointer */
    uintptr_t frame; /* frame pointer: rbp */
};

/* A sampled block that realloc may give back (call_stacks.h). */
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
    bool armed;       /* the kernel dispatches this thread's calls */
    bool calling;     /* the handler is making a system call for the allocator */
    bool asking;      /* in malloc_usable_size(), which the probe called */
    bool forking;     /* in fork(), which holds the allocator's locks */
    uint8_t rounds;   /* rounds of destructors that have run */
    uint8_t function; /* enum profile_function of the operation */

    /* Number of allocations until the next timed operation, and flags for this operation. */
    uint32_t until_timed;
    bool faults_wanted; /* its page faults are counted */
    bool alone;         /* its time is measured with fences around it */
    bool counted;       /* its events are counted (perf_events.h) */

    void *signal_stack;            /* see own_stack.h; NULL: none */
    uintptr_t frame;               /* stack pointer in the interposed function */
    struct profile_thread *counts; /* where the thread counts, in the file */
    struct live_thread *live;      /* its balance of live bytes (live.h) */

    /* The operation that the thread is in. */
    uint64_t began_ticks;   /* when it began, if it is timed */
    uint32_t kernel_calls;  /* number of its system calls so far */
    uint64_t kernel_ticks;  /* time of these system calls */
    struct watched watched; /* data of `given`, if THREAD_WATCHED */
    const void *given;      /* block passed to free or realloc */
    /* During the operation: page faults of the thread before it. At its end: its own faults. */
    uint64_t faults;

    /* Sampled critical sections (locks.c). */
    const void *section;                /* lock of the section that is timed, or NULL */
    uint64_t section_ticks;             /* when that section began */
    struct lock_record *section_record; /* entry of that lock, or NULL */
    bool section_early;                 /* it is one of the lock's first sections */
    uint32_t until_section;             /* locks until the next timed section */

    uint32_t number; /* number of this thread; never 0, never reused */
    struct random random;

    /* The sample of the last allocation (layout.h) until it has the distance to the next block.
     * Otherwise `layout_entry` is NULL. */
    struct layout_block *layout_entry;
    uintptr_t layout_block; /* the block of that sample */
    /* 1 + bytes of the last tracked block that was given back; 0: none */
    uint64_t layout_lost;
    uintptr_t layout_lost_block; /* that block */

    int64_t until_stack;       /* bytes until the next sampled call stack */
    uint64_t next_stack_every; /* mean distance of samples by which it was chosen */
    uint64_t stack_every;      /* the same for the operation that the thread is in */
    struct call_stacks_lost stack_lost;
    /* The allocation that is being recorded: its block, and the place of the call. */
    uintptr_t stack_block;
    uint64_t stack_bytes;
    uint64_t stack_ticks; /* when the recording began */
    struct unwind_start stack_start;

    bool has_timer;        /* the thread has a timer (cpu_timer.h) */
    int timer;             /* the kernel's number of that timer */
    uint64_t timer_cpu_ns; /* time of the timer's last signal, by the CPU clock */
    uint64_t timer_ns;     /* the same time, by CLOCK_MONOTONIC */

    uint8_t counter_slots;       /* slots with an event; see perf_events.h */
    int counters[PROFILE_SLOTS]; /* descriptors of the events */
    /* During the operation: the counts at its beginning. At its end: its own events. */
    uint64_t events[PROFILE_SLOTS];
    uint64_t events_missed; /* ns in which the events were not counted */
};

extern __thread struct thread_state thread_state __attribute__((visibility("hidden")));

#endif
