/* profile.h - the file in which the probe records one process: the interface between C and Python.
 *
 * The probe (src/probe) maps the file and counts in it while the process runs, so a killed process
 * leaves what it counted up to then. cairn/profile/reader.py reads it. Numbers are in the byte
 * order of the machine, which `order` reveals. Counters only grow. docs/profile-format.md has an
 * annotated example. Always:
 *
 *     the file begins with a struct profile_head
 *     everything that the head names by offset lies wholly within `file_bytes`
 *     chunks[k] != 0  =>  at that offset lie PROFILE_CHUNK_THREADS << k structs profile_thread
 *     samples != 0    =>  at that offset lies one struct profile_samples
 *     total over threads == sum over all structs profile_thread
 *
 * A struct profile_thread belongs to one thread at a time. When that thread ends, the next one goes
 * on counting in it.
 *
 * Times are in ticks of the processor's clock; the pairs (ticks_begin, ns_begin) and (ticks_last,
 * ns_last) calibrate it. Every struct has the same layout on every 64-bit machine. A change of a
 * layout needs another PROFILE_VERSION.
 */
#ifndef CAIRN_RECORD_PROFILE_H
#define CAIRN_RECORD_PROFILE_H

#include "base/base.h"

#include <assert.h>

#define PROFILE_MAGIC "cairnpro"

enum {
    PROFILE_VERSION = 5,
    PROFILE_ORDER = 0x01020304,
    PROFILE_PATH_BYTES = 1024, /* with the NUL; longer paths are cut */
    PROFILE_CHUNK_THREADS = 8, /* places in the first chunk */
    PROFILE_CHUNKS = 24,
    PROFILE_OTHER_CALLS = 32, /* entries of profile_head.other_calls */

    /* Size groups, by bytes requested: small, medium, and large above that. */
    PROFILE_SMALL_MAX = 1024,
    PROFILE_MEDIUM_MAX = 32768,

    /* Buckets of histograms. */
    PROFILE_OCTAVE_BUCKETS = 8,
    PROFILE_BUCKETS = 40 * PROFILE_OCTAVE_BUCKETS, /* times: to 2^42 ticks, twenty minutes */
    PROFILE_SIZE_BUCKETS = 4 * 48,                 /* sizes: four an octave, to 2^48 bytes */
    PROFILE_LIFE_BUCKETS = 48,                     /* lifetimes: one an octave, in ticks */

    PROFILE_MOMENTS = 512,
    PROFILE_SLOTS = 4, /* events that are counted together */
};

/* The state of the process. */
enum profile_state {
    /* It runs, was killed, ended by a system call of its own, or executed another program. Such a
     * program has a file of its own. */
    PROFILE_RUNNING = 1,
    PROFILE_ENDED = 2,
};

/* The functions that are counted. Those that allocate come first. */
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
    PROFILE_NEW, /* operator new, in all its forms */
    PROFILE_NEW_ARRAY,
    PROFILE_ALLOCATING, /* number of functions that allocate */

    PROFILE_FREE = PROFILE_ALLOCATING, /* and free_sized(), free_aligned_sized() */
    PROFILE_FREE_NULL,                 /* free and delete of NULL, counted here only */
    PROFILE_DELETE,
    PROFILE_DELETE_ARRAY,
    PROFILE_USABLE_SIZE,
    PROFILE_TRIM, /* malloc_trim */
    PROFILE_FUNCTIONS,
    PROFILE_RELEASING = PROFILE_FUNCTIONS - PROFILE_ALLOCATING,
};

/* Groups of functions that are sampled together. Every function belongs to one. */
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

/* Parallel: more than one thread lives. */
enum profile_phase { PROFILE_SERIAL, PROFILE_PARALLEL, PROFILE_PHASES };

/* Local: the thread that allocated a block frees it. Remote: another thread does. */
enum profile_whose { PROFILE_LOCAL, PROFILE_REMOTE, PROFILE_WHOSE };

/* System calls made within the allocator. */
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
    PROFILE_OTHER, /* all others; see profile_head.other_calls */
    PROFILE_CALLS,
};

/* Locks that the allocator takes by pthread functions. libc's internal locks show by their futex
 * calls only. */
enum profile_lock { PROFILE_MUTEX, PROFILE_SPIN, PROFILE_RWLOCK, PROFILE_LOCKS };

/* Events in user mode that the processor counts, or the kernel (page faults). */
enum profile_event {
    PROFILE_CYCLES,
    PROFILE_INSTRUCTIONS,
    PROFILE_BRANCH_MISSES,
    PROFILE_CACHE_MISSES,
    PROFILE_DTLB_MISSES,
    PROFILE_PAGE_FAULTS,
    PROFILE_EVENTS,
};

/* How system calls were seen. */
enum profile_dispatch {
    PROFILE_DISPATCH = 1,  /* all, by syscall user dispatch */
    PROFILE_INTERPOSE = 2, /* only those through libc's functions */
    PROFILE_UNSEEN = 3,    /* none, by choice */
};

/* Paths: operations that are timed together. The constants are the first paths of each kind of
 * operation; profile_cell() adds size group and phase. */
enum { PROFILE_CELLS = PROFILE_GROUPS * PROFILE_PHASES };
enum profile_path {
    /* malloc and new, of memory that was not handed out since the kernel mapped it. */
    PROFILE_NEW_MEMORY = 0 * PROFILE_CELLS,
    PROFILE_REUSED_MEMORY = 1 * PROFILE_CELLS, /* malloc and new, other memory */
    PROFILE_TIMED_CALLOC = 2 * PROFILE_CELLS,
    PROFILE_TIMED_REALLOC = 3 * PROFILE_CELLS, /* by the new size */
    PROFILE_TIMED_ALIGNED = 4 * PROFILE_CELLS,
    PROFILE_FREE_LOCAL = 5 * PROFILE_CELLS,
    PROFILE_FREE_REMOTE = 6 * PROFILE_CELLS,
    PROFILE_PATHS = 7 * PROFILE_CELLS,
};

struct profile_call_counts {
    uint64_t calls;
    uint64_t failed;
    uint64_t bytes; /* mapped, unmapped, advised or grown by them */
    uint64_t ticks;
    uint64_t max_ticks; /* of the longest call */
    /* CPU time of futex wait, sched_yield and sleep; 0 for other calls. */
    uint64_t cpu_ns;
};

struct profile_other_call {
    uint64_t number; /* 1 + the system call's number; 0: unused */
    uint64_t calls;
};

struct profile_lock_counts {
    uint64_t taken;      /* by lock or trylock */
    uint64_t contended;  /* waits: the lock was not free */
    uint64_t wait_ticks; /* total of the waits */
    uint64_t max_wait_ticks;
    uint64_t refused; /* trylocks that failed */

    /* Critical sections: a sample is timed, one at a time in each thread. */
    uint64_t sections;
    uint64_t section_ticks;
    uint64_t max_section_ticks;
};

struct profile_head {
    char magic[8];
    uint32_t order; /* PROFILE_ORDER */
    uint32_t version;

    /* Sizes of this struct, profile_thread and profile_samples, for a reader to check. */
    uint32_t head_bytes;
    uint32_t thread_bytes;
    uint32_t samples_bytes;
    uint32_t state; /* enum profile_state */
    uint64_t file_bytes;

    uint32_t process;
    uint32_t parent;
    /* 1: the process began by fork, and its first blocks are its parent's. 0: it began by exec. */
    uint32_t forked;
    uint32_t dispatch; /* enum profile_dispatch; 0: not chosen yet */
    /* Why PROFILE_DISPATCH was refused, where it was wanted. EOPNOTSUPP: the process runs within
     * valgrind. 0: it was not refused. */
    uint32_t dispatch_errno;
    uint32_t exit_code; /* of a process in PROFILE_ENDED */

    uint64_t gap; /* one allocation in `gap` is timed; large ones all */
    uint64_t began_unix_ns;

    /* Readings of both clocks at the beginning and at the last moment. */
    uint64_t ticks_begin;
    uint64_t ns_begin;
    uint64_t ticks_last;
    uint64_t ns_last;

    /* Time that reading the clock twice takes, without and with fences. The reader subtracts the
     * first from the times of operations, and the second from those of operations timed alone and
     * of system calls. Nothing is subtracted from times of locks. */
    uint64_t pair_ticks;
    uint64_t alone_pair_ticks;

    /* Cost of a dispatched system call in addition to the call. The probe has subtracted it
     * already. */
    uint64_t dispatch_ticks;

    /* Interval of the threads' CPU timers; 0: CPU time is not sampled. The interval is less than
     * the kernel's tick, so each tick gives a sample. */
    uint64_t timer_ns;
    uint32_t timer_errno;    /* why a timer was refused; 0: none was */
    uint32_t exact;          /* 1: profile_thread.frees are counted */
    uint64_t timers_refused; /* threads without a timer */

    uint32_t events[PROFILE_SLOTS];       /* 1 + enum profile_event; 0: none */
    uint32_t event_errnos[PROFILE_SLOTS]; /* why it was refused; 0: it was not */

    /* Events of an empty operation, for the reader to subtract. Valid if has_event_nothing is 1. */
    uint64_t event_nothing[PROFILE_SLOTS];
    uint64_t has_event_nothing;

    uint64_t threads_started; /* that allocated, or that pthread_create() made */
    uint64_t threads_live;
    uint64_t threads_most;           /* maximum of threads_live */
    uint64_t threads_lost;           /* not counted: the file could not grow */
    uint64_t chunks[PROFILE_CHUNKS]; /* offsets; 0: none */
    uint64_t samples;                /* offset; 0: none */

    uint64_t failed[PROFILE_ALLOCATING]; /* calls that returned NULL or an error */

    /* Calls of threads that were ending or lost. They are in no struct profile_thread. */
    uint64_t late_calls[PROFILE_FUNCTIONS];
    uint64_t late_bytes[PROFILE_ALLOCATING];

    /* The kernel's figures for the process, as of the last moment. */
    uint64_t minor_faults;
    uint64_t major_faults;
    uint64_t user_us;
    uint64_t system_us;
    uint64_t peak_resident_bytes;

    uint64_t contended_locks; /* distinct locks with a wait, at most 1,024 */
    struct profile_call_counts calls[PROFILE_CALLS];

    /* Calls of kind PROFILE_OTHER by their number. If all entries are taken, a further number is
     * counted in calls[PROFILE_OTHER] only. */
    struct profile_other_call other_calls[PROFILE_OTHER_CALLS];

    char program[PROFILE_PATH_BYTES];
    char allocator[PROFILE_PATH_BYTES]; /* library that malloc belongs to */
};

/* The place in which a thread counts, and after its end the next one. */
struct profile_thread {
    uint32_t thread;      /* kernel's number of its thread; 0: vacant */
    uint32_t users;       /* threads that have counted here in turn */
    uint64_t next;        /* used by the probe: next vacant place */
    uint64_t since_ticks; /* when its thread began; 0: vacant */
    uint64_t lived_ticks; /* total lifetime of its former threads */
    uint64_t calls[PROFILE_ALLOCATING][PROFILE_PHASES][PROFILE_GROUPS];
    uint64_t bytes[PROFILE_ALLOCATING][PROFILE_PHASES][PROFILE_GROUPS]; /* requested */
    uint64_t released[PROFILE_RELEASING][PROFILE_PHASES];

    /* Calls of malloc and new that got new memory: PROFILE_NEW_MEMORY. */
    uint64_t fresh[PROFILE_PHASES][PROFILE_GROUPS];

    /* Frees of blocks whose owner is known, if profile_head.exact is 1. */
    uint64_t frees[PROFILE_WHOSE][PROFILE_PHASES][PROFILE_GROUPS];

    uint64_t cpu_samples;                       /* clock samples of its CPU time */
    uint64_t cpu_samples_inside[PROFILE_KINDS]; /* of these, in the allocator */
    uint64_t cpu_samples_probe;                 /* of these, in the probe */
    struct profile_lock_counts locks[PROFILE_LOCKS];
};

/* The timed operations of one path. Each is counted once, in one of three groups:
 *
 *     switched   the thread lost its processor in it, and it made no system call
 *     alone      timed with fences, so that the processor had nothing else under way: takes longer
 *     count      timed as it runs, overlapped with the instructions around it
 */
struct profile_times {
    uint64_t count;
    uint64_t ticks;
    uint64_t max_ticks;
    uint64_t alone;
    uint64_t alone_ticks;
    uint64_t switched;
    uint64_t switched_ticks;
    uint64_t kernel; /* operations of `count` with a system call */
    uint64_t kernel_ticks;

    /* Operations in which page faults were counted. Only large ones of these are timed, too. */
    uint64_t fault_operations;
    uint64_t faults;         /* their sum */
    uint64_t faults_squared; /* the sum of their squares */

    /* Operations in which events were counted. Only large ones of these are timed, too. */
    uint64_t event_operations;
    uint64_t events[PROFILE_SLOTS];         /* their sums */
    uint64_t events_squared[PROFILE_SLOTS]; /* sums of squares, each number capped at 2^24 */

    uint32_t buckets[PROFILE_BUCKETS]; /* of `count`, by ticks: profile_bucket() */
};

/* The state of the process at one moment. Entries that are not used yet are all 0. */
struct profile_moment {
    uint64_t ns;                /* since ns_begin */
    uint64_t live_bytes;        /* requested and not freed; estimated */
    uint64_t live_usable_bytes; /* set apart for these; UINT64_MAX: not asked */
    uint64_t held_bytes;        /* mapped by the allocator; 0: no system calls seen */
    uint64_t resident_bytes;    /* of the process, without pages of files */

    /* Of the next four, UINT64_MAX means not measured. All but huge_bytes are resident memory of
     * the allocator, in extents of 2 MiB with at least one page that was handed out. */
    uint64_t unasked_bytes;   /* never handed out */
    uint64_t unwritten_bytes; /* of these, filled with zeroes; from a sample of pages */
    uint64_t huge_bytes;      /* of the process; if unwritten_bytes >= 8 MiB */
    uint64_t own_bytes;       /* all of it, handed out or not */
};

struct profile_samples {
    struct profile_times times[PROFILE_PATHS];

    /* Weighted counts: each block counts for the blocks that it stands for. */
    uint64_t sizes[PROFILE_SIZE_BUCKETS];                 /* allocations by requested bytes */
    uint64_t lives[PROFILE_GROUPS][PROFILE_LIFE_BUCKETS]; /* frees by ticks since allocation */
    uint64_t freed[PROFILE_GROUPS];                       /* frees */
    uint64_t freed_elsewhere[PROFILE_GROUPS];             /* of these, by another thread */

    /* Weighted sums over blocks whose allocation was timed. */
    uint64_t usable_bytes; /* set apart by the allocator */
    uint64_t asked_bytes;  /* requested */

    uint64_t moment_ns; /* least time between two moments */
    struct profile_moment moments[PROFILE_MOMENTS];
};

static_assert(sizeof(struct profile_head) % 8 == 0 && sizeof(struct profile_thread) % 8 == 0,
              "no padding at the end");

/* Returns the bucket of a time: exact below PROFILE_OCTAVE_BUCKETS ticks, then
 * PROFILE_OCTAVE_BUCKETS buckets for each octave. The last bucket holds all longer times. */
static inline uint32_t profile_bucket(uint64_t ticks)
{
    if (ticks < PROFILE_OCTAVE_BUCKETS)
        return (uint32_t)ticks;
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(ticks);
    uint32_t bucket =
        (octave - 2) * PROFILE_OCTAVE_BUCKETS + (uint32_t)((ticks >> (octave - 3)) & 7);
    return bucket < PROFILE_BUCKETS ? bucket : PROFILE_BUCKETS - 1;
}

/* Returns what to add to the first path of a kind of operation. */
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
