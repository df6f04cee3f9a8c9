/* session.h - creates the probe's file for this process (profile.h describes it), and gives each
 * thread a struct profile_thread of the file to count in.
 *
 * The file is created at the process's first allocation, in the folder that CAIRN_PROBE names. If
 * the process cannot make a file, a record in the spare memory takes its place (spare.h).
 * Without CAIRN_PROBE, or in a process with gained privileges (setuid), the probe is off: every
 * interposed function only calls the allocator. thread.c begins and ends threads here, and
 * account.c adds moments: records of the whole process at one time (struct profile_moment). Any
 * thread may call any function. A thread that holds the lock of session.c has another guard than
 * THREAD_OUTSIDE, or has blocked the program's signals (futex_lock.h). Between calls, always:
 *
 *     session.head != NULL      <=>  the file is mapped, and all of it has disk blocks reserved
 *     session.samples != NULL   <=>  session.head != NULL
 *     session.parallel          <=>  more than one thread lives (head->threads_live > 1)
 *
 * A failure is recorded in the file and never reported to the program. Nothing here calls malloc.
 */
#ifndef CAIRN_PROBE_SESSION_H
#define CAIRN_PROBE_SESSION_H

#include "record/profile.h"

#include <stdatomic.h>

struct session {
    struct profile_head *head;       /* NULL: there is no file, and nothing is counted */
    struct profile_samples *samples; /* lies in the same file */
    _Atomic bool parallel;
    uint32_t gap;                       /* one allocation in `gap` is timed, on average */
    bool timers;                        /* CPU time is sampled (unless CAIRN_PROBE_TIMER=off) */
    bool exact;                         /* CAIRN_PROBE_PATHS=exact is set: see owners.h */
    bool measures;                      /* malloc's library also has malloc_usable_size */
    bool of_glibc;                      /* malloc's library is glibc */
    bool foreign[PROFILE_ALLOCATING];   /* the function is not in malloc's library */
    _Atomic uint64_t held_bytes;        /* bytes mapped with access, which the allocator has */
    _Atomic uint64_t next_moment_ticks; /* when the next moment is due */
};

/* Bytes of the live blocks (live.h). */
struct live {
    uint64_t bytes;  /* requested bytes */
    uint64_t usable; /* usable bytes (malloc_usable_size()) */
    uint64_t error;  /* standard error of the estimate `bytes` */
};

extern struct session session __attribute__((visibility("hidden")));

/* Returns the value of an environment variable, or NULL if the variable is not set. Unlike
 * getenv(), the function takes no lock. */
const char *session_option(const char *name);
bool session_option_is(const char *name, const char *value);

/* Returns the path of this library, or NULL before the process has begun to count. */
const char *session_library(void);

/* Writes the path of the probe's file into `to`, with `ending` in place of ".probe". Returns false
 * if the process has no file of its own or the path is too long. */
bool session_path(char *to, size_t room, const char *ending);

/* Makes a file `to` bytes long and reserves disk blocks for its bytes [from, to), which become
 * zeroes. Returns 0 or -errno. */
long session_reserve(int fd, uint64_t from, uint64_t to);

/* Returns true if this process has a file to count in. The first call creates the file. Returns
 * false if the probe is off, if libc has not set up the environment yet, or while another call is
 * creating the file. */
bool session_on(void);

/* Returns true if this process is not counted: the probe is off, or no file could be created.
 * session_on() then returns false and does not try again. */
bool session_is_off(void);

/* Reserves disk blocks for two further chunks of structs profile_thread, which are enough for at
 * least 48 threads. Called when the process is about to forbid itself system calls, because it
 * cannot enlarge the file afterwards. */
void session_make_room(void);

/* Returns a struct for a thread to count in: the struct of an ended thread, or a new one.
 * `announced` is true if session_thread_comes() has already counted the thread as living. Returns
 * NULL if the file cannot grow. */
struct profile_thread *session_thread_begin(bool announced);

/* Makes the struct of an ended thread available to the next thread, and counts the thread as
 * ended. */
void session_thread_end(struct profile_thread *counts);

/* session_thread_comes() counts a thread as living before pthread_create() makes it, and returns
 * the number of living threads. If pthread_create() succeeds, session_thread_came() raises the most
 * threads at once to this number. If it fails, session_thread_stays_away() subtracts the thread
 * again. */
uint64_t session_thread_comes(void);
void session_thread_came(uint64_t live);
void session_thread_stays_away(void);

/* Adds a moment to the file (struct profile_moment), with the live bytes `live`. Updates the clocks
 * and the figures of getrusage(2) in the file. */
void session_moment(struct live live);

/* A child of fork calls this before its first allocation. Detaches the child from its parent's
 * file. The next operation of the child creates a file of its own. */
void session_forked(void);

/* A child of a fork calls this if its parent could not be recorded. The child's next operation then
 * tries to create a file again. */
void session_retry(void);

/* Adds the last moment, and records that the process ended with `exit_code`. A signal handler that
 * calls _exit() may have interrupted a function that holds the lock. In that case the last moment
 * is not added. */
void session_end(int exit_code, struct live live);

/* Adds `amount` to a number in the file that several threads add to. */
static inline void session_add(uint64_t *number, uint64_t amount)
{
    __atomic_fetch_add(number, amount, __ATOMIC_RELAXED);
}

/* Raises a number in the file to `value`, if the number is less. */
static inline void session_raise(uint64_t *number, uint64_t value)
{
    uint64_t old = __atomic_load_n(number, __ATOMIC_RELAXED);
    while (value > old && !__atomic_compare_exchange_n(number, &old, value, true, __ATOMIC_RELAXED,
                                                       __ATOMIC_RELAXED))
        continue;
}

#endif
