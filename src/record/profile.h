/* profile.h - what the probe writes about one process, as it lies in a file: the seam between C and Python.
 *
 * The file is mapped and written to while the process runs, so that one that was killed leaves what was counted up to
 * then. Numbers have the byte order of the machine, which `order` tells; counters only grow. docs/profile-format.md
 * has an annotated example. Always:
 *
 *     the file begins with a struct profile_head; what it names by offset lies wholly within `file_bytes`
 *     chunks[k], where not 0, is the offset of PROFILE_CHUNK_THREADS << k structs profile_thread
 *     samples, where not 0, is the offset of one struct profile_samples
 *     a total over threads is the sum over all structs profile_thread: a thread that ends leaves its own to the next
 *         one, which goes on counting in it
 *
 * Times are in ticks of the clock that `ticks_begin` … `ns_last` calibrate. Every struct has the same layout on every
 * machine of 64 bits; a change of it is another PROFILE_VERSION.
 */
#ifndef CAIRN_RECORD_PROFILE_H
#define CAIRN_RECORD_PROFILE_H

#include "base/base.h"

#include <assert.h>

#define PROFILE_MAGIC "cairnpro"

enum {
    PROFILE_VERSION = 5,
    PROFILE_ORDER = 0x01020304,
    PROFILE_PATH_BYTES = 1024, /* with the NUL; a longer path is cut */
    PROFILE_CHUNK_THREADS = 8,
    PROFILE_CHUNKS = 24,
    PROFILE_OTHER_CALLS =
        32, /* kernel calls without a kind of their own, told by number; what is beyond is in the sum */
    PROFILE_SMALL_MAX = 1024, /* bytes asked for: the groups of sizes */
    PROFILE_MEDIUM_MAX = 32768,
    PROFILE_OCTAVE_BUCKETS = 8,
    PROFILE_BUCKETS = 40 * PROFILE_OCTAVE_BUCKETS, /* to 2^42 ticks: twenty minutes */
    PROFILE_SIZE_BUCKETS = 4 * 48,                 /* four an octave, to 2^48 bytes */
    PROFILE_LIFE_BUCKETS = 48,                     /* one an octave, in ticks */
    PROFILE_MOMENTS = 512,
    PROFILE_SLOTS = 4, /* of events that are counted together */
};

/* How the process stands. */
enum profile_state {
    PROFILE_RUNNING =
        1, /* also: killed, ended by a system call of its own, or became another program, which has its own file */
    PROFILE_ENDED = 2,
};

/* What is counted. Those that allocate come first. */
enum profile_function {
    PROFILE_MALLOC,
    PROFILE_CALLOC,
    PROFILE_REALLOC,
    PROFILE_REALLOCARRAY,
    PROFILE_ALIGNED_ALLOC,
    PROFILE_POSIX_MEMALIGN,
    PROFILE_MEMALIGN,
    PROFILE_VALLOC,
    PROFILE_PVALLOC,
    PROFILE_NEW, /* operator new and new[], in all their forms */
    PROFILE_NEW_ARRAY,
    PROFILE_ALLOCATING, /* how many those are */

    PROFILE_FREE = PROFILE_ALLOCATING, /* with free_sized() and free_aligned_sized() */
    PROFILE_FREE_NULL,                 /* free(NULL) and delete of it: not in the lines around */
    PROFILE_DELETE,
    PROFILE_DELETE_ARRAY,
    PROFILE_USABLE_SIZE,
    PROFILE_TRIM, /* malloc_trim */
    PROFILE_FUNCTIONS,
    PROFILE_RELEASING = PROFILE_FUNCTIONS - PROFILE_ALLOCATING,
};

/* What is sampled together; every function is one of these. */
enum profile_kind {
    PROFILE_KIND_PLAIN, /* malloc and new */
    PROFILE_KIND_CALLOC,
    PROFILE_KIND_REALLOC, /* and reallocarray */
    PROFILE_KIND_ALIGNED,
    PROFILE_KIND_RELEASE, /* free and delete */
    PROFILE_KIND_OTHER,   /* malloc_usable_size, malloc_trim */
    PROFILE_KINDS,
};

enum profile_group { PROFILE_SMALL, PROFILE_MEDIUM, PROFILE_LARGE, PROFILE_GROUPS };
enum profile_phase {
    PROFILE_SERIAL,
    PROFILE_PARALLEL,
    PROFILE_PHASES
}; /* is there more than one thread? */
enum profile_whose {
    PROFILE_LOCAL,
    PROFILE_REMOTE,
    PROFILE_WHOSE
}; /* who frees is who allocated; or another */

/* The kernel's calls, made within the allocator. */
enum profile_call {
    PROFILE_MMAP,
    PROFILE_MUNMAP,
    PROFILE_MREMAP,
    PROFILE_BRK,
    PROFILE_MPROTECT,
    PROFILE_MADVISE_DONTNEED,
    PROFILE_MADVISE_FREE,
    PROFILE_MADVISE_HUGEPAGE,
    PROFILE_MADVISE_OTHER,
    PROFILE_FUTEX_WAIT,
    PROFILE_FUTEX_WAKE,
    PROFILE_SCHED_YIELD,
    PROFILE_SLEEP,
    PROFILE_OTHER,
    PROFILE_CALLS,
};

/* Locks that the allocator takes by pthread's functions; libc's own are told by their kernel calls alone. */
enum profile_lock { PROFILE_MUTEX, PROFILE_SPIN, PROFILE_RWLOCK, PROFILE_LOCKS };

/* What the processor, or the kernel for it, counts in user mode. */
enum profile_event {
    PROFILE_CYCLES,
    PROFILE_INSTRUCTIONS,
    PROFILE_BRANCH_MISSES,
    PROFILE_CACHE_MISSES,
    PROFILE_DTLB_MISSES,
    PROFILE_PAGE_FAULTS,
    PROFILE_EVENTS,
};

/* How kernel calls were seen. */
enum profile_dispatch {
    PROFILE_DISPATCH = 1,  /* every one, by the kernel's syscall user dispatch */
    PROFILE_INTERPOSE = 2, /* those that go through the functions of libc alone */
    PROFILE_UNSEEN = 3,    /* not looked for */
};

/* Whose operations are timed together: each of these kinds x group x phase. A path is PROFILE_CELLS apart from the next. */
enum { PROFILE_CELLS = PROFILE_GROUPS * PROFILE_PHASES };
enum profile_path {
    PROFILE_NEW_MEMORY = 0 *
        PROFILE_CELLS, /* malloc and new; not handed out since the kernel gave it */
    PROFILE_REUSED_MEMORY = 1 * PROFILE_CELLS,
    PROFILE_TIMED_CALLOC = 2 * PROFILE_CELLS,
    PROFILE_TIMED_REALLOC = 3 * PROFILE_CELLS, /* by the size that is asked for */
    PROFILE_TIMED_ALIGNED = 4 * PROFILE_CELLS,
    PROFILE_FREE_LOCAL = 5 * PROFILE_CELLS,
    PROFILE_FREE_REMOTE = 6 * PROFILE_CELLS, /* another thread had it from the allocator */
    PROFILE_PATHS = 7 * PROFILE_CELLS,
};

struct profile_call_counts {
    uint64_t calls;
    uint64_t failed;
    uint64_t bytes; /* that they were about: mapped, unmapped, advised, grown */
    uint64_t ticks;
    uint64_t max_ticks;
    uint64_t
        cpu_ns; /* of those that wait (futex wait, sched_yield, sleep): what of that was on a processor */
};

struct profile_other_call {
    uint64_t number; /* plus one; 0: unused */
    uint64_t calls;
};

struct profile_lock_counts {
    uint64_t taken;      /* by lock or by trylock */
    uint64_t contended;  /* of those, not at once */
    uint64_t wait_ticks; /* until they were */
    uint64_t max_wait_ticks;
    uint64_t refused; /* by trylock */
    uint64_t
        sections; /* critical sections that were timed: a sample, one at a time for each thread */
    uint64_t section_ticks;
    uint64_t max_section_ticks;
};

struct profile_head {
    char magic[8];
    uint32_t order;
    uint32_t version;
    uint32_t head_bytes; /* sizeof of the four structs, for a reader to check itself by */
    uint32_t thread_bytes;
    uint32_t samples_bytes;
    uint32_t state; /* enum profile_state */
    uint64_t file_bytes;

    uint32_t process;
    uint32_t parent;
    uint32_t forked;   /* 1: began by fork, so its first blocks are its parent's; 0: by exec */
    uint32_t dispatch; /* enum profile_dispatch; 0: not chosen yet, so that none was seen */
    uint32_t
        dispatch_errno; /* why not PROFILE_DISPATCH where that was asked for, EOPNOTSUPP: it ran within valgrind;
                              * 0: it was not */
    uint32_t exit_code; /* where the state is PROFILE_ENDED and it was told */

    uint64_t gap; /* allocations are timed one in so many, on average */
    uint64_t began_unix_ns;
    uint64_t ticks_begin; /* the two clocks at the beginning … */
    uint64_t ns_begin;
    uint64_t ticks_last; /* … and when last looked at */
    uint64_t ns_last;
    uint64_t pair_ticks; /* what reading the clock twice takes: to be taken off times … */
    uint64_t
        alone_pair_ticks; /* … and that with fences: off those alone, and kernel calls; not off locks */

    uint64_t
        dispatch_ticks; /* what a dispatched call of the kernel costs beyond itself; taken off already */

    uint64_t
        timer_ns; /* threads' CPU time is sampled as often as the kernel's tick allows, and no oftener; 0: not */
    uint32_t timer_errno;    /* why not, where that was asked for */
    uint32_t exact;          /* 1: profile_thread.frees are counted */
    uint64_t timers_refused; /* threads without one */

    uint32_t
        events[PROFILE_SLOTS]; /* that operations are counted by: 1 + enum profile_event; 0: none */
    uint32_t event_errnos[PROFILE_SLOTS]; /* why not; 0: it was, or no thread has come to it */
    uint64_t
        event_nothing[PROFILE_SLOTS]; /* what is counted where nothing is done: to be taken off … */
    uint64_t has_event_nothing;       /* … if that is known */

    uint64_t threads_started; /* that allocated, or were seen to be made */
    uint64_t threads_live;
    uint64_t threads_most;
    uint64_t threads_lost; /* that could not be counted: no room on the disk */
    uint64_t chunks[PROFILE_CHUNKS];
    uint64_t samples;

    uint64_t failed[PROFILE_ALLOCATING]; /* calls that gave NULL, or an error */
    uint64_t late_calls
        [PROFILE_FUNCTIONS]; /* by threads that were ending; in no struct profile_thread */
    uint64_t late_bytes[PROFILE_ALLOCATING];
    uint64_t minor_faults; /* of the process, when last looked at */
    uint64_t major_faults;
    uint64_t user_us;
    uint64_t system_us;
    uint64_t peak_resident_bytes;

    uint64_t
        contended_locks; /* how many different ones somebody waited for; beyond 1,024 they are not told apart */
    struct profile_call_counts calls[PROFILE_CALLS];
    struct profile_other_call other_calls[PROFILE_OTHER_CALLS];

    char program[PROFILE_PATH_BYTES];
    char allocator[PROFILE_PATH_BYTES]; /* who owns the malloc that was called */
};

struct profile_thread {
    uint32_t thread;      /* the kernel's number of who counts here now; 0: nobody */
    uint32_t users;       /* threads that have counted here, one after the other */
    uint64_t next;        /* the probe's own: the next one with nobody */
    uint64_t since_ticks; /* when who counts here now began; 0: nobody */
    uint64_t lived_ticks; /* how long those before did, together */
    uint64_t calls[PROFILE_ALLOCATING][PROFILE_PHASES][PROFILE_GROUPS];
    uint64_t bytes[PROFILE_ALLOCATING][PROFILE_PHASES][PROFILE_GROUPS]; /* asked for */
    uint64_t released[PROFILE_RELEASING][PROFILE_PHASES];
    uint64_t
        fresh[PROFILE_PHASES]
             [PROFILE_GROUPS]; /* calls of malloc and new that got new memory: PROFILE_NEW_MEMORY */
    uint64_t frees[PROFILE_WHOSE][PROFILE_PHASES]
                  [PROFILE_GROUPS];             /* of blocks whose owner is known */
    uint64_t cpu_samples;                       /* of its CPU time; of these, */
    uint64_t cpu_samples_inside[PROFILE_KINDS]; /* in the allocator, and */
    uint64_t cpu_samples_probe;                 /* in the probe */
    struct profile_lock_counts locks[PROFILE_LOCKS];
};

/* One path's times. Most operations are timed as they are, among instructions before and behind that the processor works
 * on meanwhile; some with nothing else under way, which takes longer: alone. */
struct profile_times {
    uint64_t count;
    uint64_t ticks;
    uint64_t max_ticks;
    uint64_t alone; /* in no other number here, but for the next two and `switched` */
    uint64_t alone_ticks;
    uint64_t
        switched; /* operations in which the thread lost its processor: in no other number here */
    uint64_t switched_ticks;
    uint64_t kernel; /* of `count`, those with a call of the kernel in them */
    uint64_t kernel_ticks;
    uint64_t
        fault_operations; /* those that were looked at for page faults; large ones were timed, too … */
    uint64_t faults;      /* … what these took, … */
    uint64_t faults_squared; /* … and the sum of the squares of that */
    uint64_t
        event_operations; /* those that were looked at by counters; large ones were timed, too … */
    uint64_t events[PROFILE_SLOTS]; /* … what these counted, … */
    uint64_t events_squared
        [PROFILE_SLOTS]; /* … and the sum of the squares of that, each of 2^24 at most */
    uint32_t buckets[PROFILE_BUCKETS]; /* by ticks: profile_bucket() */
};

/* A moment of the process: 0 ns where there is none yet. */
struct profile_moment {
    uint64_t ns;         /* since the beginning */
    uint64_t live_bytes; /* asked for and not freed; estimated */
    uint64_t
        live_usable_bytes; /* what the allocator set apart for these; UINT64_MAX: it was not asked */
    uint64_t
        held_bytes; /* that the allocator has from the kernel; 0 where kernel calls are not seen */
    uint64_t resident_bytes; /* of the process, without pages of files */
    /* UINT64_MAX: not looked at, or not told */
    uint64_t
        unasked_bytes; /* the allocator's, resident, and never handed out, in extents of 2 MiB that have something that was */
    uint64_t unwritten_bytes; /* of these, what reads as zero; by a sample */
    uint64_t
        huge_bytes; /* of the process, in huge pages; not told where there is less than 8 MiB of the one before */
    uint64_t own_bytes; /* the allocator's, resident, in such extents of 2 MiB */
};

struct profile_samples {
    struct profile_times times[PROFILE_PATHS];
    /* Of the blocks that are watched, each for `weight` of its kind. */
    uint64_t sizes[PROFILE_SIZE_BUCKETS]; /* weights, by bytes asked for */
    uint64_t lives[PROFILE_GROUPS]
                  [PROFILE_LIFE_BUCKETS];     /* weights, by the ticks from allocation to free */
    uint64_t freed[PROFILE_GROUPS];           /* weights */
    uint64_t freed_elsewhere[PROFILE_GROUPS]; /* of those, by another thread */
    uint64_t usable_bytes; /* what the allocator set apart for watched blocks, weighted, … */
    uint64_t asked_bytes;  /* … and what was asked for */
    uint64_t moment_ns;    /* the least time between two moments */
    struct profile_moment moments[PROFILE_MOMENTS];
};

static_assert(sizeof(struct profile_head) % 8 == 0 && sizeof(struct profile_thread) % 8 == 0,
              "no padding at the end");

/* The bucket of a time: exact below PROFILE_OCTAVE_BUCKETS, then so many an octave; the last holds all that is more. */
static inline uint32_t profile_bucket(uint64_t ticks)
{
    if (ticks < PROFILE_OCTAVE_BUCKETS)
        return (uint32_t)ticks;
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(ticks);
    uint32_t bucket =
        (octave - 2) * PROFILE_OCTAVE_BUCKETS + (uint32_t)((ticks >> (octave - 3)) & 7);
    return bucket < PROFILE_BUCKETS ? bucket : PROFILE_BUCKETS - 1;
}

/* Where among the paths of its kind. */
static inline uint32_t profile_cell(enum profile_group group, enum profile_phase phase)
{
    return (uint32_t)group * PROFILE_PHASES + (uint32_t)phase;
}

static inline enum profile_kind profile_kind(enum profile_function function)
{
    switch (function) {
    case PROFILE_MALLOC:
    case PROFILE_NEW:
    case PROFILE_NEW_ARRAY:
        return PROFILE_KIND_PLAIN;
    case PROFILE_CALLOC:
        return PROFILE_KIND_CALLOC;
    case PROFILE_REALLOC:
    case PROFILE_REALLOCARRAY:
        return PROFILE_KIND_REALLOC;
    case PROFILE_USABLE_SIZE:
    case PROFILE_TRIM:
        return PROFILE_KIND_OTHER;
    default:
        return function < PROFILE_ALLOCATING ? PROFILE_KIND_ALIGNED : PROFILE_KIND_RELEASE;
    }
}

static inline enum profile_group profile_group(size_t bytes)
{
    return (enum profile_group)((bytes > PROFILE_SMALL_MAX) + (bytes > PROFILE_MEDIUM_MAX));
}

#endif
