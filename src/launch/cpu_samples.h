/* cpu_samples.h - takes clock samples of a program and its descendants on every processor.
 *
 * Every CPU_SAMPLES_PERIOD_NS the kernel takes a clock sample on each processor that is not idle:
 * the thread that runs, its instruction address, and the top of its stack. The kernel also records
 * the files that processes map, with their addresses, and which process starts which other process.
 * Nothing is loaded into the program and none of its calls is redirected. So its threads contend
 * for locks as often as without sampling. The kernel writes its records into one ring buffer for
 * each processor, and the launcher copies (drains) them into the file. The file contains one struct
 * cpu_samples_head, and then the records as perf_event_open(2) describes them.
 * cairn/profile/cpu_samples.py reads the file.
 *
 * The clock belongs to the processor, not to the thread. A clock of the thread would start with the
 * thread. Threads shorter than a period would then have no sample, and longer threads would be
 * sampled at the same moments of each run. The kernel would also stop and restart such a clock
 * whenever the thread sleeps, and so slow down threads that sleep often.
 *
 * Sampling all processes needs the rights of root, or a kernel.perf_event_paranoid of 0 or less.
 *
 * launch.c calls these functions from its only thread. Always:
 *
 *     the file begins with a whole head if the head could be written at all
 *     head.error is 0, or the errno that explains why there are no samples
 *     after the head there are only whole records; each time the launcher drains the rings, it
 *     appends the new records of each processor in turn, sorted by time, and then a mark
 *     every record after a mark is at least as new as all records before the previous mark
 *     while the program runs, the launcher drains the rings every CPU_SAMPLES_DRAIN_NS, or later if
 *     the system is busy; if a ring is full, the kernel drops records and writes a record with the
 *     number of dropped ones
 *     if the samples exceed a GiB, all of them are dropped
 */
#ifndef CAIRN_LAUNCH_CPU_SAMPLES_H
#define CAIRN_LAUNCH_CPU_SAMPLES_H

#include "base/base.h"

#include <sched.h>
#include <sys/types.h>

/* The period gives nearly a thousand samples per second. It is not a simple fraction or multiple of
 * a millisecond, because much periodic work of kernels and programs has a period of whole
 * milliseconds. Each sample costs an interrupt, which takes 10 to 25 us in a virtual machine. */
#define CPU_SAMPLES_PERIOD_NS UINT64_C(1061803)

#define CPU_SAMPLES_DRAIN_NS (50 * NS_PER_MS)

/* The first bytes of the file: "wherabt" and the version of the format, 2. */
#define CPU_SAMPLES_MAGIC UINT64_C(0x0274626172656877)

struct cpu_samples_head {
    uint64_t magic;
    uint64_t period_ns;
    uint32_t pid;   /* process number of PROG */
    uint32_t error; /* errno; if it is not 0, there are no samples */
};

/* The type of a mark, which is a record without content that the launcher writes after each drain.
 * The kernel never writes this type. */
enum { CPU_SAMPLES_MARK = 1 << 16 };

struct perf_event_mmap_page;

struct cpu_samples_ring {
    int fd;
    struct perf_event_mmap_page *page;
    size_t bytes; /* size of the ring's data, a power of two */
};

struct cpu_samples {
    int file; /* -1 if samples were not requested */
    struct cpu_samples_head head;
    size_t count;
    uint64_t due_ns;
    uint64_t bytes; /* bytes written to the file so far */
    struct cpu_samples_ring rings[CPU_SETSIZE];
};

/* Starts sampling into the file `path`. `pid` is a child that has not yet called exec. Returns
 * false with errno set if the file cannot be created. If sampling is not possible, it returns true,
 * and head.error has the reason. */
bool cpu_samples_open(struct cpu_samples *samples, const char *path, pid_t pid);

/* Returns when the rings must be drained, on the clock of clock_now_ns(). Returns UINT64_MAX if
 * there are no rings. */
uint64_t cpu_samples_due_ns(const struct cpu_samples *samples);

/* Moves the records from the rings to the file. */
void cpu_samples_drain(struct cpu_samples *samples);

/* Drains the rings for the last time and closes everything. Call it after all processes have
 * ended. */
void cpu_samples_close(struct cpu_samples *samples);

#endif
