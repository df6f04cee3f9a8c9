/* session.h - the file of this process, and who counts in it: begin, threads, fork, exit.
 *
 * The file is made when the process first allocates, in the folder that CAIRN_PROBE names; without that, or in a
 * process with gained privileges, the probe is off and passes everything on. Between calls, always:
 *
 *     session.head != NULL      <=>  the file is mapped, and everything in it has its blocks on the disk
 *     session.samples != NULL   <=>  session.head != NULL
 *     session.parallel          <=>  more than one thread lives
 *
 * What fails is told in the file, never to the program. Nothing here allocates from malloc.
 */
#ifndef CAIRN_PROBE_SESSION_H
#define CAIRN_PROBE_SESSION_H

#include "probe/watched.h"
#include "record/profile.h"

#include <stdatomic.h>

struct session {
    struct profile_head *head;
    struct profile_samples *samples;
    _Atomic bool parallel;
    uint32_t gap;
    bool timers;   /* unless CAIRN_PROBE_TIMER=off: CPU time is sampled */
    bool exact;    /* CAIRN_PROBE_PATHS=exact: every free is told apart by who had the block */
    bool measures; /* malloc_usable_size() is of whoever malloc is */
    _Atomic uint64_t held_bytes; /* what the allocator has from the kernel */
    _Atomic uint64_t next_moment_ticks;
};

extern struct session session __attribute__((visibility("hidden")));

/* A variable of the environment, NULL: not there. Without the locks of getenv. */
const char *session_option(const char *name);
bool session_option_is(const char *name, const char *value);

/* Is there a file to count in? Makes it where that has not been tried; false: the probe is off, or libc not ready. */
bool session_on(void);

/* Someone to count for a thread: what one that ended has left, or a new one; NULL: no room. `announced`: it is among
 * those that session_thread_comes() told. */
struct profile_thread *session_thread_begin(bool announced);
void session_thread_end(struct profile_thread *counts);

/* A thread is about to be made; it was not, after all. */
void session_thread_comes(void);
void session_thread_stays_away(void);

/* Notes clocks and what the kernel knows of the process. */
void session_moment(struct watched_live live);

/* In a fork's child, before it allocates: leaves the parent's file. */
void session_forked(void);

/* The process ends, perhaps in a handler that interrupted one of these functions: then without a last moment. */
void session_end(int exit_code, struct watched_live live);

/* Adds to a number in the file that several threads count in. */
static inline void session_add(uint64_t *number, uint64_t amount)
{
    __atomic_fetch_add(number, amount, __ATOMIC_RELAXED);
}

static inline void session_raise(uint64_t *number, uint64_t value)
{
    uint64_t old = __atomic_load_n(number, __ATOMIC_RELAXED);
    while (value > old && !__atomic_compare_exchange_n(number, &old, value, true, __ATOMIC_RELAXED,
                                                       __ATOMIC_RELAXED))
        continue;
}

#endif
