/* whereabouts.h - where the processors are in a program and all that it starts, looked at by a clock of the kernel's.
 *
 * Every WHEREABOUTS_PERIOD_NS each processor that is not idle notes whose thread it runs, where that is and what lies on
 * top of its stack; and the kernel notes which files lie where, and who starts whom. Nothing is put into the program,
 * which takes no detour, so its locks meet as often as without. The notes go into a file as the kernel writes them
 * (perf_event_open(2)), behind one struct whereabouts_head; cairn/profile/cpu_samples.py reads them.
 *
 * The clock is the processors' and not the threads': one of each thread's own begins anew with it, so that threads
 * shorter than a period have no note, and longer ones have theirs at the same moments of each run; and it is stopped
 * and started whenever a thread sleeps, for which those would pay that sleep more. It needs the right to look at all
 * that runs: root's, or kernel.perf_event_paranoid of 0 or less.
 *
 * Always:
 *
 *     the file begins with a whole head, or could not be written; `error` is why nothing was noted, else 0
 *     behind it whole records only: by turns those of each processor in the order of their times, and a mark,
 *     before which all stand that are older than the youngest before the mark before it
 *     a ring is emptied every WHEREABOUTS_DRAIN_NS while the program runs, or as soon as the launcher gets to it;
 *     what it could not hold the kernel counts in a record of its own
 *     beyond a GiB the notes are given up
 */
#ifndef CAIRN_LAUNCH_WHEREABOUTS_H
#define CAIRN_LAUNCH_WHEREABOUTS_H

#include "base/base.h"

#include <sched.h>
#include <sys/types.h>

/* Nearly a thousand times a second, and in no simple ratio to the milliseconds that kernels and programs repeat by. Each
 * note costs an interrupt, which in a virtual machine takes 10 to 25 us. */
#define WHEREABOUTS_PERIOD_NS UINT64_C(1061803)

#define WHEREABOUTS_DRAIN_NS (50 * NS_PER_MS)

/* "wherabt" and the version of what follows. */
#define WHEREABOUTS_MAGIC UINT64_C(0x0274626172656877)

struct whereabouts_head {
    uint64_t magic;
    uint64_t period_ns;
    uint32_t pid;   /* PROG's */
    uint32_t error; /* errno; with it nothing that was noted may be believed */
};

/* The kind of a mark, which is a record without content: no kernel writes such a kind. */
enum { WHEREABOUTS_MARK = 1 << 16 };

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
    uint64_t bytes; /* that were noted */
    struct whereabouts_ring rings[CPU_SETSIZE];
};

/* `pid` is a child that has not yet called exec. False, with errno set, when there can be no such file. */
bool whereabouts_open(struct whereabouts *whereabouts, const char *path, pid_t pid);

/* When to look next, on clock_now_ns(). */
uint64_t whereabouts_due_ns(const struct whereabouts *whereabouts);

/* Moves into the file what there is. */
void whereabouts_drain(struct whereabouts *whereabouts);

/* Once all processes have ended. */
void whereabouts_close(struct whereabouts *whereabouts);

#endif
