/* processes.h - which processes descend from one, and how much memory each holds.
 *
 * What is read here is true for an instant: a process may end, and its number be given to another, right
 * after. So a number found here may be read about, but a signal may be sent only to a child that the sender
 * itself has not yet reaped: nobody else can free that number. processes_children() exists for that purpose.
 *
 * Kernels without CONFIG_PROC_CHILDREN have no list of children; there /proc is walked whole, with equal
 * results.
 */
#ifndef CAIRN_LAUNCH_PROCESSES_H
#define CAIRN_LAUNCH_PROCESSES_H

#include "base/base.h"

#include <sys/types.h>

/* Descendants beyond this many are not found; the array is the caller's, so that the cost in memory is seen.
 */
#define PROCESSES_MAX 1024

/* Both write at most `capacity` numbers and return how many; zombies are among them. */
size_t processes_children(pid_t parent, pid_t *pids, size_t capacity);
size_t processes_descendants(pid_t ancestor, pid_t *pids, size_t capacity);

/* The slow way, whichever the kernel offers; here for the tests. */
size_t processes_descendants_by_walk(pid_t ancestor, pid_t *pids, size_t capacity);

/* The number that was given to the newest process or thread of this machine; 0 when that cannot be told. As
 * long as it does not change nobody new was started. */
pid_t processes_newest(void);

/* Whether it runs or sleeps, rather than being a zombie or gone. */
bool processes_is_alive(pid_t pid);

struct process_memory {
    uint64_t anon_bytes;
    uint64_t shmem_bytes;
    uint64_t file_bytes;    /* mapped files: not counted as memory of the program */
    uint64_t highest_bytes; /* most that the three ever were together; begins anew with exec */
};

/* False for a zombie, a kernel thread, and what is gone. `text` is what /proc/PID/status says. */
bool processes_read_memory(pid_t pid, struct process_memory *memory);
bool processes_parse_memory(const char *text, struct process_memory *memory);

/* Exact, from the page tables: pages that several processes share count once in the sum over all of them. The
 * time it takes grows with the size of the process: measured, 30 us and 10 us per MiB of small OS pages. */
struct process_share {
    uint64_t anon_bytes;
    uint64_t shmem_bytes;
    uint64_t lazy_bytes; /* given back with MADV_FREE, not yet taken */
};

bool processes_read_share(pid_t pid, struct process_share *share);
bool processes_parse_share(const char *text, struct process_share *share);

#endif
