/* cpu_samples.h - takes clock samples of a program and its descendants on every processor.
 *
 * After each period the kernel takes a clock sample on each processor that is not idle: the thread
 * that runs, its instruction address, and the top of its stack. A sample in the kernel also has the
 * chain of calls in the kernel, which shows interrupts. The kernel also records the files that
 * processes map, with their addresses, and which process starts which other process. Nothing is
 * loaded into the program and none of its calls is redirected. So its threads contend for locks as
 * often as without sampling. The kernel writes its records into one ring buffer for each processor,
 * and the launcher copies (drains) them into the file. The file contains one struct
 * cpu_samples_head, and then the records as perf_event_open(2) describes them.
 * cairn/profile/cpu_samples.py reads the file.
 *
 * The clock belongs to the processor, not to the thread. A clock of the thread would start with the
 * thread. Threads shorter than a period would then have no sample, and longer threads would be
 * sampled at the same moments of each run. The kernel would also stop and restart such a clock
 * whenever the thread sleeps, and so slow down threads that sleep often.
 *
 * Sampling all processes needs the rights of root, or a kernel.perf_event_paranoid of 0 or less. If
 * the kernel refuses that, an adaptive clock falls back to a clock of each thread of the tree, and
 * head.scope says so. Its period is random for each thread, so that threads are not sampled at the
 * same moments of their lives. A steady clock has no such fallback.
 *
 * The period is steady or adaptive. A steady one is CPU_SAMPLES_PERIOD_NS. An adaptive one grows
 * with the CPU time of the tree, from CPU_SAMPLES_LEAST_NS to CPU_SAMPLES_PERIOD_NS, so that a
 * program of 50 ms has a thousand samples and a long program is not slowed down. It also varies at
 * random around that value, so that it does not stay in step with a loop of the program. The file
 * has a record of each change.
 *
 * launch.c calls these functions from its only thread. Always:
 *
 *     the file begins with a whole head if the head could be written at all
 *     head.error is 0, an errno that explains why there are no samples, or CPU_SAMPLES_TOO_MANY
 *     after the head there are only whole records; each time the launcher drains the rings, it
 *     appends the new records of each processor in turn, sorted by time, and then a mark
 *     every record after a mark is at least as new as all records before the previous mark
 *     the times of all records are those of CLOCK_MONOTONIC
 *     while the program runs, the launcher drains the rings every CPU_SAMPLES_DRAIN_NS, five times
 *     as often while the processors have a short adaptive period, or later if the system is busy;
 *     if a ring is full, the kernel drops records and writes a record with the number of dropped
 *     ones
 *     thinning == 0 if the clock is steady; else it is a number up to CPU_SAMPLES_THINNING_MOST
 *         that grows with the bytes of the samples in the file
 *     of the samples that the launcher reads, it writes one of 2^thinning, at random, and the
 *         bits of CPU_SAMPLES_THINNING_SHIFT in the head of this sample are `thinning`
 *     if the records exceed a GiB, all of them are dropped: then head.error is
 *         CPU_SAMPLES_TOO_MANY. An adaptive clock has that only if there are very many records of
 *         processes and of mapped files
 */
#ifndef CAIRN_LAUNCH_CPU_SAMPLES_H
#define CAIRN_LAUNCH_CPU_SAMPLES_H

#include "base/base.h"
#include "base/random.h"

#include <sched.h>
#include <sys/types.h>

/* The period gives nearly a thousand samples per second. It is not a simple fraction or multiple of
 * a millisecond, because much periodic work of kernels and programs has a period of whole
 * milliseconds. Each sample costs an interrupt, which takes 10 to 25 us in a virtual machine. */
#define CPU_SAMPLES_PERIOD_NS UINT64_C(1061803)

/* The first period of an adaptive clock. */
#define CPU_SAMPLES_LEAST_NS UINT64_C(48731)

/* The mean period if each thread has its own clock. The launcher can change the period of the first
 * thread, and of threads that start later, but not of other threads that run already. */
#define CPU_SAMPLES_THREADS_NS UINT64_C(251803)

#define CPU_SAMPLES_DRAIN_NS (50 * NS_PER_MS)

/* The first bytes of the file: "wherabt" and the version of the format, 5. */
#define CPU_SAMPLES_MAGIC UINT64_C(0x0574626172656877)

/* The clocks (perf events) that take the samples. */
enum cpu_samples_scope {
    CPU_SAMPLES_PROCESSORS,           /* a clock for each processor */
    CPU_SAMPLES_THREADS,              /* a clock for each thread of the tree */
    CPU_SAMPLES_THREADS_IN_USER_MODE, /* CPU_SAMPLES_THREADS, but no samples in the kernel */
};

struct cpu_samples_head {
    uint64_t magic;
    uint64_t period_ns;
    uint32_t pid;   /* process number of PROG */
    uint32_t error; /* errno or CPU_SAMPLES_TOO_MANY; 0 if there are samples */
    uint32_t scope; /* enum cpu_samples_scope */
    uint32_t unused;
};

/* The value of head.error if the records would have made the file larger than a GiB. No errno has
 * this value. */
#define CPU_SAMPLES_TOO_MANY (1 << 16)

/* Five bits of perf_event_header.misc, which the kernel leaves 0 in samples. */
#define CPU_SAMPLES_THINNING_SHIFT 8
#define CPU_SAMPLES_THINNING_MOST  31

/* Types of records that the launcher writes. The kernel never writes these types. */
enum {
    CPU_SAMPLES_MARK = 1 << 16, /* a record without content, after each drain */
    CPU_SAMPLES_PERIOD,         /* struct cpu_samples_period */
};

/* Says that the period changed: of the processors' clocks, or of the first thread's clock. */
struct cpu_samples_period {
    uint64_t period_ns; /* the new period */
    uint64_t ns;        /* when the period changed */
};

struct perf_event_mmap_page;

struct cpu_samples_ring {
    int fd;
    struct perf_event_mmap_page *page;
    size_t bytes; /* size of the ring's data, a power of two */
};

struct cpu_samples {
    int file; /* -1 if samples were not requested */
    struct cpu_samples_head head;
    bool adaptive;
    int cgroup; /* folder of the tree's cgroup, or -1 */
    int used;   /* counter of the tree's CPU time, or -1 */
    uint64_t began_ns;
    uint64_t period_ns;  /* the periods vary at random around this one */
    uint64_t changed_ns; /* CPU time of the tree when period_ns last changed */
    struct random random;
    size_t count;
    uint64_t due_ns;
    uint64_t bytes;        /* bytes of the kernel's records in the file */
    uint64_t sample_bytes; /* bytes of the samples among them */
    unsigned thinning;     /* see above */
    struct cpu_samples_ring rings[CPU_SETSIZE];
};

/* Starts sampling into the file `path`. `pid` is a child that has not yet called exec. Returns
 * false with errno set if the file cannot be created. If sampling is not possible, it returns true,
 * and head.error has the reason.
 *
 * If `cgroup` is not -1, it is the folder of a cgroup of version 2 that `pid` is in. Then the
 * clocks of the processors run only while a process of this cgroup runs. Without a cgroup, the file
 * has samples of all processes of the machine. */
bool cpu_samples_open(struct cpu_samples *samples, const char *path, pid_t pid, bool adaptive,
                      int cgroup);

/* Returns when the rings must be drained, on the clock of clock_now_ns(). Returns UINT64_MAX if
 * there are no rings. */
uint64_t cpu_samples_due_ns(const struct cpu_samples *samples);

/* Moves the records from the rings to the file. */
void cpu_samples_drain(struct cpu_samples *samples);

/* Drains the rings for the last time and closes everything. Call it after all processes have
 * ended. */
void cpu_samples_close(struct cpu_samples *samples);

#endif
