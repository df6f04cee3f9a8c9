/* profile.h - the file in which the probe records one process: the interface between C and Python.
 *
 * The probe (src/probe) maps the file and counts in it while the process runs, so a killed process
 * leaves its counts up to that time. The file may be longer than `file_bytes`, and is then a hole
 * from there on. cairn/profile/reader.py reads the file. Numbers are in the byte order of the
 * machine, which the reader finds from `order`. Counters only grow. docs/profile-format.md has an
 * annotated example. Always:
 *
 *     the file begins with a struct profile_head
 *     everything that the head names by offset lies wholly within `file_bytes`
 *     chunks[k] != 0  =>  at that offset lie PROFILE_CHUNK_THREADS << k structs profile_thread
 *     samples != 0    =>  at that offset lies one struct profile_samples
 *     total of a counter over all threads == sum of this counter over all structs profile_thread
 *
 * A struct profile_thread belongs to one thread at a time. When this thread ends, another thread
 * goes on counting in the same struct.
 *
 * A file of version 8 has the same structs, but its head ends before the field `held_most`, and
 * `sealed_bytes` and `fresh_others` are unused and 0.
 *
 * Times are in ticks of the processor's clock; the pairs (ticks_begin, ns_begin) and (ticks_last,
 * ns_last) calibrate it. Every struct has the same layout on every 64-bit machine. Every change of
 * a layout needs a new PROFILE_VERSION.
 */
#ifndef CAIRN_RECORD_PROFILE_H
#define CAIRN_RECORD_PROFILE_H

#include "base/base.h"
#include "record/lock_record.h"

#include <assert.h>

#define PROFILE_MAGIC "cairnpro"

enum {
    PROFILE_VERSION = 9,
    PROFILE_ORDER = 0x01020304,
    PROFILE_PATH_BYTES = 1024, /* including the NUL; longer paths are cut */
    PROFILE_CHUNK_THREADS = 8, /* number of structs profile_thread in chunk 0 */
    PROFILE_CHUNKS = 20,
    PROFILE_OTHER_CALLS = 32, /* entries of profile_head.other_calls */

    /* Size groups by requested bytes: small and medium blocks up to these sizes, then large. */
    PROFILE_SMALL_MAX = 1024,
    PROFILE_MEDIUM_MAX = 32768,

    /* Buckets of histograms. */
    PROFILE_OCTAVE_BUCKETS = 8,
    PROFILE_BUCKETS = 40 * PROFILE_OCTAVE_BUCKETS, /* times: up to 2^42 ticks, twenty minutes */
    PROFILE_SIZE_BUCKETS = 4 * 48, /* block sizes: four per octave, up to 2^48 bytes */
    PROFILE_LIFE_BUCKETS = 48,     /* lifetimes in ticks: one per octave */

    PROFILE_MOMENTS = 384,
    PROFILE_SLOTS = 4, /* most events (enum profile_event) of one run */
};

/* The state of the process. */
enum profile_state {
    /* The process runs, was killed, ended by a system call of its own, or executed another program.
     * The other program has a file of its own. */
    PROFILE_RUNNING = 1,
    PROFILE_ENDED = 2,
};

/* The functions that are counted. The functions that allocate come first. */
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

    PROFILE_FREE = PROFILE_ALLOCATING, /* also free_sized(), free_aligned_sized() */
    PROFILE_FREE_NULL,                 /* free and delete of NULL, counted only here */
    PROFILE_DELETE,
    PROFILE_DELETE_ARRAY,
    PROFILE_USABLE_SIZE,
    PROFILE_TRIM, /* malloc_trim */
    PROFILE_FUNCTIONS,
    PROFILE_RELEASING = PROFILE_FUNCTIONS - PROFILE_ALLOCATING,
};

/* Kinds of functions. Clock samples within the allocator are counted for each kind
 * (cpu_samples_inside). Every function has one kind. */
enum profile_kind {
    PROFILE_KIND_PLAIN, /* malloc and new */
    PROFILE_KIND_CALLOC,
    PROFILE_KIND_REALLOC, /* realloc and reallocarray */
    PROFILE_KIND_ALIGNED,
    PROFILE_KIND_RELEASE, /* free and delete */
    PROFILE_KIND_OTHER,   /* malloc_usable_size, malloc_trim */
    PROFILE_KINDS,
};

enum profile_group { PROFILE_SMALL, PROFILE_MEDIUM, PROFILE_LARGE, PROFILE_GROUPS };

/* The phase of an operation is PROFILE_PARALLEL if more than one thread is alive. */
enum profile_phase { PROFILE_SERIAL, PROFILE_PARALLEL, PROFILE_PHASES };

/* A free is local if the thread that allocated the block frees it, and otherwise remote. */
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
    PROFILE_SLEEP, /* nanosleep, poll, flock and other calls that can wait */
    PROFILE_OTHER, /* all others; see profile_head.other_calls */
    PROFILE_CALLS,
};

/* Locks that the allocator takes by pthread functions. libc's internal locks are not counted here;
 * only their futex calls are. */
enum profile_lock { PROFILE_MUTEX, PROFILE_SPIN, PROFILE_RWLOCK, PROFILE_LOCKS };

/* Events in user mode. The processor counts them; the kernel counts the page faults. */
enum profile_event {
    PROFILE_CYCLES,
    PROFILE_INSTRUCTIONS,
    PROFILE_BRANCH_MISSES,
    PROFILE_CACHE_MISSES,
    PROFILE_DTLB_MISSES,
    PROFILE_PAGE_FAULTS,
    PROFILE_EVENTS,
};

/* How the probe sees system calls. */
enum profile_dispatch {
    PROFILE_DISPATCH = 1,  /* all calls, by syscall user dispatch */
    PROFILE_INTERPOSE = 2, /* only calls through libc's functions */
    PROFILE_UNSEEN = 3,    /* no calls, because of CAIRN_PROBE_KERNEL=off */
};

/* The times of all operations on one path are in one struct profile_times. Each constant is the
 * first path of a kind of operation. The path is the constant + profile_cell(size group, phase). */
enum { PROFILE_CELLS = PROFILE_GROUPS * PROFILE_PHASES };
enum profile_path {
    /* malloc and new, if the memory was never handed out since the kernel mapped it. */
    PROFILE_NEW_MEMORY = 0 * PROFILE_CELLS,
    PROFILE_REUSED_MEMORY = 1 * PROFILE_CELLS, /* malloc and new of other memory */
    PROFILE_TIMED_CALLOC = 2 * PROFILE_CELLS,
    PROFILE_TIMED_REALLOC = 3 * PROFILE_CELLS, /* in the group of the new size */
    PROFILE_TIMED_ALIGNED = 4 * PROFILE_CELLS,
    PROFILE_FREE_LOCAL = 5 * PROFILE_CELLS,
    PROFILE_FREE_REMOTE = 6 * PROFILE_CELLS,
    PROFILE_PATHS = 7 * PROFILE_CELLS,
};

struct profile_call_counts {
    uint64_t calls;
    uint64_t failed;
    uint64_t bytes;     /* bytes that the calls mapped, unmapped, advised or grew */
    uint64_t ticks;     /* total time of the calls */
    uint64_t max_ticks; /* time of the longest call */
    /* CPU time of PROFILE_FUTEX_WAIT, PROFILE_SCHED_YIELD and PROFILE_SLEEP; 0 for other calls. */
    uint64_t cpu_ns;
};

struct profile_other_call {
    uint64_t number; /* 1 + the system call's number; 0: unused entry */
    uint64_t calls;
};

struct profile_lock_counts {
    uint64_t taken;          /* how often a thread took a lock */
    uint64_t contended;      /* how often a thread waited for a lock */
    uint64_t wait_ticks;     /* total time of these waits */
    uint64_t max_wait_ticks; /* time of the longest wait */
    uint64_t refused;        /* calls of trylock that failed */

    /* The timed critical sections. Each thread times a random sample, one section at a time. */
    uint64_t sections;          /* number of timed sections */
    uint64_t section_ticks;     /* total time of these sections */
    uint64_t max_section_ticks; /* time of the longest section */
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
    /* 1: the process began by fork and has blocks of its parent. 0: the process began by exec. */
    uint32_t forked;
    uint32_t dispatch; /* enum profile_dispatch; 0: not chosen yet */
    /* errno with which the kernel refused PROFILE_DISPATCH. EOPNOTSUPP: the process runs within
     * valgrind. EBUSY: the program itself uses dispatch. 0: it was not refused, or not wanted. */
    uint32_t dispatch_errno;
    uint32_t exit_code; /* valid if `state` is PROFILE_ENDED */

    /* One small or medium allocation in `gap` is timed, on average. All large ones are timed. */
    uint64_t gap;
    uint64_t began_unix_ns;

    /* Readings of the processor's clock and of the kernel's clock, at the beginning and at the last
     * moment. */
    uint64_t ticks_begin;
    uint64_t ns_begin;
    uint64_t ticks_last;
    uint64_t ns_last;

    /* Time that two readings of the processor's clock take, without fences (`pair_ticks`) and with
     * fences (`alone_pair_ticks`). The reader subtracts `pair_ticks` from the times of operations.
     * It subtracts `alone_pair_ticks` from the times of operations timed alone and of system calls.
     * Nothing is subtracted from times of locks. */
    uint64_t pair_ticks;
    uint64_t alone_pair_ticks;

    /* Time that the dispatch of a system call takes, without the call itself. The probe has already
     * subtracted this time from the times in the file. */
    uint64_t dispatch_ticks;

    /* CPU time between two samples of a thread's CPU timer; 0: CPU time is not sampled. The kernel
     * looks at the timers at each tick, so this is the tick (CLOCK_MONOTONIC_COARSE's resolution),
     * unless the timers' interval is longer. */
    uint64_t timer_ns;
    uint32_t timer_errno;    /* errno of a refused timer; 0: none was refused */
    uint32_t exact;          /* 1: profile_thread.frees is valid */
    uint64_t timers_refused; /* number of threads without a timer */

    uint32_t events[PROFILE_SLOTS];       /* 1 + enum profile_event; 0: no event */
    uint32_t event_errnos[PROFILE_SLOTS]; /* errno of a refused event; 0: not refused */

    /* Counts of the events during an empty operation. The reader subtracts them from those of each
     * operation. They are valid if has_event_nothing is 1. */
    uint64_t event_nothing[PROFILE_SLOTS];
    uint64_t has_event_nothing;

    uint64_t threads_started;        /* threads that allocated or that pthread_create() made */
    uint64_t threads_live;           /* threads that are alive now */
    uint64_t threads_most;           /* most threads that were alive at once */
    uint64_t threads_lost;           /* threads not counted: the file could not grow */
    uint64_t chunks[PROFILE_CHUNKS]; /* offsets of the chunks; 0: no chunk */

    /* The part of calls[PROFILE_MPROTECT].bytes that was not writable after the call: the call took
     * write access away, or there was none before. */
    uint64_t sealed_bytes;

    /* Calls of functions other than malloc and new that allocated memory which was never handed out
     * since the kernel mapped it. */
    uint64_t fresh_others[PROFILE_GROUPS];

    uint64_t samples; /* offset of struct profile_samples; 0: none */

    /* How the probe counted the bytes of the live blocks (enum live_way of src/probe/live.h). 0
     * means that it only estimated them. If it counted, the true peak of the usable bytes differs
     * from `live_peak_usable` by at most `live_granted`. */
    uint64_t live_way;
    uint64_t live_peak_usable;
    uint64_t live_granted;
    /* `live_noted_bytes` is an estimate of the requested bytes of the live blocks near the peak.
     * `live_noted_error` is its standard error. If live bytes were counted, the estimate belongs to
     * a moment at which `live_noted_usable` usable bytes were live, a little below the peak.
     * Otherwise it is the highest of `live_looks` estimates. */
    uint64_t live_noted_usable;
    uint64_t live_noted_bytes;
    uint64_t live_noted_error;
    uint64_t live_looks;

    /* Calls for 1 byte or more that returned NULL or an error. */
    uint64_t failed[PROFILE_ALLOCATING];

    /* Calls of threads that were ending, or for which the file had no room. No struct
     * profile_thread contains these calls. */
    uint64_t late_calls[PROFILE_FUNCTIONS];
    uint64_t late_bytes[PROFILE_ALLOCATING];

    /* Figures of getrusage(2) for the process, as of the last moment. */
    uint64_t minor_faults;
    uint64_t major_faults;
    uint64_t user_us;
    uint64_t system_us;
    uint64_t peak_resident_bytes;
    uint64_t peak_own_bytes; /* bytes of peak_resident_bytes that are the probe's */

    uint64_t contended_locks; /* locks for which a thread waited, at most 1,024 */
    struct profile_call_counts calls[PROFILE_CALLS];

    /* Calls of kind PROFILE_OTHER by their number. If all entries are taken, calls with further
     * numbers are counted only in calls[PROFILE_OTHER]. */
    struct profile_other_call other_calls[PROFILE_OTHER_CALLS];

    char program[PROFILE_PATH_BYTES];
    char allocator[PROFILE_PATH_BYTES]; /* path of the library that has malloc */

    /* The most bytes that the allocator held at once since ns_begin. Memory is held while it is
     * mapped with access. */
    uint64_t held_most;

    /* For each path of frees, `freed_copies` is the sum of the copies of all sampled frees (struct
     * profile_times). `freed_squares` is the sum of the squared numbers of copies. */
    uint64_t freed_copies[PROFILE_WHOSE][PROFILE_CELLS];
    uint64_t freed_squares[PROFILE_WHOSE][PROFILE_CELLS];
};

/* The counters of one thread. When the thread has ended, the struct is vacant until another thread
 * goes on counting in it. */
struct profile_thread {
    uint32_t thread;      /* kernel's number of the present thread; 0: vacant */
    uint32_t users;       /* number of threads that have used this struct */
    uint64_t next;        /* for the probe's list of vacant structs */
    uint64_t since_ticks; /* when the present thread began; 0: vacant */
    uint64_t lived_ticks; /* total lifetime of the former threads */
    uint64_t calls[PROFILE_ALLOCATING][PROFILE_PHASES][PROFILE_GROUPS];
    uint64_t bytes[PROFILE_ALLOCATING][PROFILE_PHASES][PROFILE_GROUPS]; /* requested */
    uint64_t released[PROFILE_RELEASING][PROFILE_PHASES];

    /* Calls of malloc and new on the path PROFILE_NEW_MEMORY. */
    uint64_t fresh[PROFILE_PHASES][PROFILE_GROUPS];

    /* If profile_head.exact is 1: frees of blocks whose allocating thread is known. */
    uint64_t frees[PROFILE_WHOSE][PROFILE_PHASES][PROFILE_GROUPS];

    uint64_t cpu_samples;                       /* all clock samples of the CPU time */
    uint64_t cpu_samples_inside[PROFILE_KINDS]; /* clock samples in the allocator */
    uint64_t cpu_samples_probe;                 /* clock samples in the probe */
    struct profile_lock_counts locks[PROFILE_LOCKS];
};

/* The timed operations of one path. The block of a sampled free may stand for many blocks. The free
 * then counts as several copies of one operation:
 *
 *     copies == weight of the block / (large ? 1 : gap)      for a free
 *     copies == 1                                            for every other operation
 *
 * So each copy stands for the same number of operations. All sums and the histogram count an
 * operation once for each copy, except `switched` and `switched_ticks`. Each operation whose time
 * is added is counted in exactly one of three groups:
 *
 *     switched   the thread lost its processor during the operation, which made no system call
 *     alone      timed with fences: the processor did not overlap the operation with the
 *                instructions around it, so the time is longer
 *     count      timed without fences: the processor overlapped the operation with the
 *                instructions around it
 */
struct profile_times {
    uint64_t count;
    uint64_t ticks;
    uint64_t max_ticks;
    uint64_t alone;
    uint64_t alone_ticks;
    uint64_t switched;
    uint64_t switched_ticks;
    uint64_t kernel; /* operations in `count` that made a system call */
    uint64_t kernel_ticks;

    /* The operations in which page faults were counted. The time of an operation is added to one of
     * the three groups only if the operation is large, because the counting slows it down. */
    uint64_t fault_operations; /* number of these operations */
    uint64_t faults;           /* sum of their page faults */
    uint64_t faults_squared;   /* sum of the squared page faults of each */

    /* The operations in which events (enum profile_event) were counted. Their times are treated in
     * the same way. */
    uint64_t event_operations;      /* number of these operations */
    uint64_t events[PROFILE_SLOTS]; /* sums of their events */
    /* Sums of the squared events of each. A number of events above 2^24 counts as 2^24. */
    uint64_t events_squared[PROFILE_SLOTS];

    /* Histogram of the operations in `count` by their times (profile_bucket()). UINT32_MAX: this
     * many or more. */
    uint32_t buckets[PROFILE_BUCKETS];
};

/* The state of the process at one moment. Entries that are not used yet are all 0. */
struct profile_moment {
    uint64_t ns;                /* time of the moment since ns_begin */
    uint64_t live_bytes;        /* estimated requested bytes of live blocks */
    uint64_t live_usable_bytes; /* usable bytes of live blocks; UINT64_MAX: not known */
    uint64_t live_error_bytes;  /* standard error of live_bytes */
    uint64_t held_bytes;        /* bytes mapped with access, which the allocator has */
    uint64_t resident_bytes;    /* resident set, without pages of files and the probe */

    /* In the next four fields, UINT64_MAX means not measured. `unasked_bytes`, `unwritten_bytes`
     * and `own_bytes` count resident memory of the allocator, and only in extents of 2 MiB of which
     * at least one page was handed out. */
    uint64_t unasked_bytes;   /* memory that was never handed out */
    uint64_t unwritten_bytes; /* estimated part of unasked_bytes that is all zeroes */
    /* The process's memory in huge pages: with --layout, or if unwritten_bytes >= 8 MiB. */
    uint64_t huge_bytes;
    uint64_t own_bytes; /* memory of the allocator, handed out or not */

    /* System calls of the allocator since ns_begin, by their purpose. */
    uint64_t memory_calls;  /* PROFILE_MMAP to PROFILE_MADVISE_OTHER */
    uint64_t waiting_calls; /* PROFILE_FUTEX_WAIT to PROFILE_SLEEP */
    uint64_t other_calls;   /* PROFILE_OTHER */
};

struct profile_samples {
    struct profile_times times[PROFILE_PATHS];

    /* Weighted counts: each sampled block counts as many times as its weight. */
    uint64_t sizes[PROFILE_SIZE_BUCKETS];                 /* allocations by requested bytes */
    uint64_t lives[PROFILE_GROUPS][PROFILE_LIFE_BUCKETS]; /* frees by the block's lifetime */
    uint64_t freed[PROFILE_GROUPS];                       /* frees */
    uint64_t freed_elsewhere[PROFILE_GROUPS];             /* remote frees */

    /* Weighted sums over blocks whose allocation was timed. */
    uint64_t usable_bytes; /* sum of malloc_usable_size() */
    uint64_t asked_bytes;  /* sum of the requested bytes */

    uint64_t moment_ns; /* present minimum time between two moments */
    struct profile_moment moments[PROFILE_MOMENTS];
    struct lock_records locks;
};

static_assert(sizeof(struct profile_head) % 8 == 0 && sizeof(struct profile_thread) % 8 == 0,
              "no padding at the end");
static_assert((PROFILE_CHUNK_THREADS << PROFILE_CHUNKS) - PROFILE_CHUNK_THREADS >= 1 << 22,
              "Linux permits at most 1 << 22 threads");

/* Returns the bucket of a time. Below PROFILE_OCTAVE_BUCKETS ticks each number of ticks has its own
 * bucket. Above, each octave has PROFILE_OCTAVE_BUCKETS buckets. The last bucket holds all longer
 * times. */
static inline uint32_t profile_bucket(uint64_t ticks)
{
    if (ticks < PROFILE_OCTAVE_BUCKETS)
        return (uint32_t)ticks;
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(ticks);
    uint32_t bucket =
        (octave - 2) * PROFILE_OCTAVE_BUCKETS + (uint32_t)((ticks >> (octave - 3)) & 7);
    return bucket < PROFILE_BUCKETS ? bucket : PROFILE_BUCKETS - 1;
}

/* Returns the number to add to the first path of a kind of operation (enum profile_path). The sum
 * is the path of this size group and phase. */
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
