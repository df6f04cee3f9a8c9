/* processes.h - finds the descendants of a process, and reads how much memory each holds.
 *
 * The results are true only for an instant, because a process may end and its number may be reused
 * right afterwards. Reading about a number that was found here is safe. A signal may be sent only
 * to a child that the sender has not yet reaped, because only reaping frees the number.
 * processes_children() exists for that purpose.
 *
 * Kernels without CONFIG_PROC_CHILDREN have no lists of children. There the functions read all of
 * /proc, with equal results.
 */
#ifndef CAIRN_LAUNCH_PROCESSES_H
#define CAIRN_LAUNCH_PROCESSES_H

#include "base/base.h"

#include <sys/types.h>

/* The largest number of descendants that are found. The caller provides the array, so that its
 * memory is visible there. */
#define PROCESSES_MAX 1024

/* Both write at most `capacity` process numbers to `pids` and return how many they wrote. Zombies
 * are included. */
size_t processes_children(pid_t parent, pid_t *pids, size_t capacity);
size_t processes_descendants(pid_t ancestor, pid_t *pids, size_t capacity);

/* Always reads all of /proc, even if the kernel has lists of children. Tests compare the two
 * ways. */
size_t processes_descendants_by_walk(pid_t ancestor, pid_t *pids, size_t capacity);

/* Returns the number of the newest process or thread on this machine, or 0 if it cannot be read.
 * While it does not change, no process was started. */
pid_t processes_newest(void);

/* Returns whether the process exists and is not a zombie. */
bool processes_is_alive(pid_t pid);

struct process_memory {
    uint64_t anon_bytes;
    uint64_t shmem_bytes;
    uint64_t file_bytes;    /* mapped files: not memory of the program */
    uint64_t highest_bytes; /* highest sum of the three since its last exec */
};

/* Read the memory of a process. They return false for a zombie, a kernel thread, and a process that
 * does not exist. `text` is the content of /proc/PID/status. */
bool processes_read_memory(pid_t pid, struct process_memory *memory);
bool processes_parse_memory(const char *text, struct process_memory *memory);

/* The share of a process in memory, read from its page tables and exact. A page that several
 * processes share counts once in the sum over all of them. Reading takes longer the larger the
 * process is; 30 us plus 10 us per MiB of small OS pages were measured. */
struct process_share {
    uint64_t anon_bytes;
    uint64_t shmem_bytes;
    uint64_t lazy_bytes; /* given back with MADV_FREE, not yet reclaimed */
};

/* Read the share of a process. `text` is the content of /proc/PID/smaps_rollup. */
bool processes_read_share(pid_t pid, struct process_share *share);
bool processes_parse_share(const char *text, struct process_share *share);

#endif
