/* whereabouts.h - where the processors are in a program and all that it starts, looked at by a clock of the kernel's.
 *
 * Every WHEREABOUTS_PERIOD_NS of CPU time of a thread the kernel notes where it is, what called that, and which files lie
 * where. Nothing is put into the program, which takes no detour, so its locks meet as often as without. The notes go
 * into a file as the kernel writes them (perf_event_open(2)), behind one struct whereabouts_head: whoever reads it may
 * take its time. cairn/whereabouts.py does.
 *
 * Always:
 *
 *     the file begins with a whole head; `error` is the reason for which nothing was noted, else 0
 *     behind it whole records only, in the order of their times within those of one processor
 *     a ring is emptied at least every WHEREABOUTS_DRAIN_NS while the program runs; what it could not hold the
 *     kernel counts in a record of its own
 */
#ifndef CAIRN_LAUNCH_WHEREABOUTS_H
#define CAIRN_LAUNCH_WHEREABOUTS_H

#include "base/base.h"
#include "launch/options.h"

#include <sys/types.h>

/* Nearly a thousand times a second, and in no simple ratio to the milliseconds that kernels and programs repeat by. Each
 * note costs an interrupt, which in a virtual machine takes 10 to 25 us. */
#define WHEREABOUTS_PERIOD_NS UINT64_C(1061803)

#define WHEREABOUTS_DRAIN_NS (50 * NS_PER_MS)

/* "wherabt" and the version of what follows. */
#define WHEREABOUTS_MAGIC UINT64_C(0x0174626172656877)

struct whereabouts_head {
    uint64_t magic;
    uint64_t period_ns;
    uint32_t kernel; /* 1: the kernel's own time is noted, too; 0: it may not be looked at */
    uint32_t error;  /* errno; with it nothing that was noted may be believed */
};

struct perf_event_mmap_page;

struct whereabouts_ring {
    int fd;
    struct perf_event_mmap_page *page;
    size_t bytes; /* of its data: a power of two */
};

struct whereabouts {
    int file; /* -1: nobody asked */
    struct whereabouts_head head;
    size_t count;
    uint64_t due_ns;
    struct whereabouts_ring rings[CPU_SETSIZE];
};

/* `pid` is a child that has not yet called exec. False, with errno set, when the file cannot be made or written. */
bool whereabouts_open(struct whereabouts *whereabouts, const struct options *options, pid_t pid);

/* When to look next, on clock_now_ns(). */
uint64_t whereabouts_due_ns(const struct whereabouts *whereabouts);

/* Moves into the file what there is. */
void whereabouts_drain(struct whereabouts *whereabouts);

/* Once all processes have ended. */
void whereabouts_close(struct whereabouts *whereabouts);

#endif
