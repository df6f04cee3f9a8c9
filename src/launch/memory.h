/* memory.h - reads how much memory a tree of processes holds now: from a cgroup (v2 or v1), or
 * process by process.
 *
 * The sampler calls these functions from the launcher's only thread. Between memory_open_…() and
 * memory_close(), always:
 *
 *     the descriptors are open and close-on-exec, so that a reading needs no path lookup
 *     one reading was already made and ignored, so that code and caches are warm for later readings
 *     a reading that fails changes nothing; the next reading may succeed
 *
 * With a cgroup, the kernel updates the statistics of a cgroup only after about 64 pages per CPU
 * have changed. Until then it returns older numbers. For a tree whose memory is only a few such
 * batches, the error would be large. So for small trees the page tables are read as well, which are
 * exact.
 *
 * The method that reads process by process (MEMORY_SAMPLED) works everywhere, but is less accurate
 * in three ways:
 *
 * - Pages shared since a fork, and shared memory, count in every process that maps them.
 * - A peak between two readings is known only from the highest size that a process ever had. This
 *   size includes mapped files. So a file that was mapped and unmapped between two readings counts
 *   as memory.
 * - A process that begins and ends between two readings is not seen at all.
 *
 * Reading the page tables of large processes is slow. So page tables are read less often than the
 * other numbers, at a pace of their own (pace.h).
 */
#ifndef CAIRN_LAUNCH_MEMORY_H
#define CAIRN_LAUNCH_MEMORY_H

#include "base/base.h"
#include "launch/division.h"
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

/* Returns the name of the method as it appears in the report, for example "cgroup v2". */
const char *memory_method_name(enum memory_method method);

/* Maximum number of processes whose highest sizes are tracked. */
#define MEMORY_FOLLOWED_MAX 64

/* The state of one process at the last reading. Only MEMORY_SAMPLED uses this struct. */
struct memory_followed {
    pid_t pid; /* 0 if the entry is free */
    bool seen; /* found by the reading in progress */
    uint64_t file_bytes;
    uint64_t highest_bytes;
};

struct memory {
    enum memory_method method;
    struct pace look; /* when page tables are read next */

    /* Fields for the cgroup methods. The first five are descriptors. */
    int stat; /* memory.stat */
    /* v1: descriptor of the file with the kernel memory. -1 if the cgroup does not count kernel
     * memory separately. */
    int kernel;
    int charged_max;      /* file of the highest charge; -1 if there is none */
    int folder;           /* the cgroup's folder, closed by the caller; or -1 */
    int vmstat;           /* /proc/vmstat; -1 if it cannot be read */
    bool resettable;      /* each reading resets charged_max */
    uint64_t slack_bytes; /* the result of memory_slack_bytes() */
    uint64_t other_bytes; /* other memory at the last reading; see peak.h */
    uint64_t cache_taken; /* see struct peak_reading */

    /* Fields for the readings process by process. */
    pid_t ancestor;
    /* The newest process number of the machine when `tree` was filled. 0 if the number is not
     * known. */
    pid_t newest;
    struct processes tree;
    uint64_t lazy_bytes; /* lazily freed, when page tables were last read */
    /* The number of pages that all processes of the machine had freed lazily when page tables were
     * last read. */
    uint64_t freed_lazily;
    struct memory_followed followed[MEMORY_FOLLOWED_MAX];
};

/* Returns the slack: the number of bytes by which the memory that the kernel has charged to a
 * cgroup may be ahead of the cgroup's statistics. The slack is two batches of 64 pages per CPU. */
uint64_t memory_slack_bytes(void);

/* Each function opens the files of one method. `folder` is the descriptor of the cgroup's folder.
 * memory_open_sampled() reads the descendants of `ancestor`. Returns false with errno set if the
 * statistics of the cgroup cannot be read. The call also resets the highest charge (charged_max) if
 * the kernel permits that. */
bool memory_open_v2(struct memory *memory, int folder);
bool memory_open_v1(struct memory *memory, int folder);
bool memory_open_sampled(struct memory *memory, pid_t ancestor);

/* Starts the pace at which page tables are read. Called when the program starts. */
void memory_begin(struct memory *memory, uint64_t now_ns);

/* Makes one reading. Returns false if that is not possible. */
bool memory_read(struct memory *memory, struct peak_reading *reading);

/* Adds the processes of the tree, and its memory as of `reading`, to the division (division.h). */
void memory_divide(const struct memory *memory, const struct peak_reading *reading,
                   struct division *division);
/* Closes the descriptors and gives back the list. Memory is not measured any more. */
void memory_close(struct memory *memory);

#endif
