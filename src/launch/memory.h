/* memory.h - reads how much memory a tree of processes holds now: from a cgroup, v2 or v1, or process by
 * process.
 *
 * Between memory_open_…() and memory_close(), always:
 *
 *     descriptors are open and close-on-exec, so that a reading costs no path lookup
 *     one reading has succeeded, which also warmed the code and the caches for those that count
 *     a reading that fails leaves the reader as it was: the next may succeed
 *
 * From a cgroup. The kernel adds up its statistics only when about 64 pages per CPU have changed; until then
 * it tells the numbers of a moment ago. A tree as small as some of these batches would read badly wrong, so
 * that its page tables are looked at as well, which are exact.
 *
 * Process by process. Works everywhere, and is worse: a page shared since a fork, or shared memory, counts in
 * every process that has it, and what happened between two readings is known only from the highest size that
 * a process ever had. That size includes mapped files: one that was mapped and unmapped between two readings
 * is taken for memory. A process that begins and ends between two readings is not seen at all.
 *
 * Page tables are looked at by a pace of their own, for the time this takes grows with the size of the
 * processes.
 */
#ifndef CAIRN_LAUNCH_MEMORY_H
#define CAIRN_LAUNCH_MEMORY_H

#include "base/base.h"
#include "launch/pace.h"
#include "launch/peak.h"
#include "launch/processes.h"

#include <sys/types.h>

enum memory_method {
    MEMORY_NOT_MEASURED,
    MEMORY_CGROUP_V2,
    MEMORY_CGROUP_V1,
    MEMORY_SAMPLED,
};

/* "cgroup v2" and so on, as in the report. */
const char *memory_method_name(enum memory_method method);

/* The highest size of more processes than this is not followed. */
#define MEMORY_FOLLOWED_MAX 64

/* A process between two readings. */
struct memory_followed {
    pid_t pid; /* 0: a free place */
    bool seen; /* in the reading that is going on */
    uint64_t file_bytes;
    uint64_t highest_bytes;
};

struct memory {
    enum memory_method method;
    struct pace look; /* at page tables */

    /* cgroup */
    int stat;             /* memory.stat */
    int kernel;           /* v1: kernel memory; -1 when it is not counted apart */
    int charged_max;      /* the highest; -1 where the kernel has none */
    int members;          /* cgroup.procs; -1 when it cannot be read */
    int vmstat;           /* the machine's; -1 when it cannot be read */
    bool resettable;      /* charged_max begins anew at every reading */
    uint64_t slack_bytes; /* see memory_slack_bytes() */
    uint64_t other_bytes; /* at the last reading */
    uint64_t cache_taken; /* see peak_reading */

    /* process by process */
    pid_t ancestor;
    pid_t newest; /* on this machine when `pids` was made; 0: not known */
    size_t pid_count;
    uint64_t lazy_bytes;   /* at the last look */
    uint64_t freed_lazily; /* by the whole machine, at the last look; in pages since its start */
    struct memory_followed followed[MEMORY_FOLLOWED_MAX];
    pid_t pids[PROCESSES_MAX];
};

/* How far the kernel's charge may be ahead of its statistics: two batches of 64 pages per CPU. */
uint64_t memory_slack_bytes(void);

/* `folder` is the cgroup's; false, with errno, when it cannot be read. The interval of charged_max begins. */
bool memory_open_v2(struct memory *memory, int folder);
bool memory_open_v1(struct memory *memory, int folder);
bool memory_open_sampled(struct memory *memory, pid_t ancestor);

/* The program starts now. */
void memory_begin(struct memory *memory, uint64_t now_ns);

bool memory_read(struct memory *memory, struct peak_reading *reading);
void memory_close(struct memory *memory);

#endif
