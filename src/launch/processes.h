/* processes.h - finds the descendants of a process, and reads how much memory each holds.
 *
 * The results are true only for an instant, because a process may end and its number may be reused
 * right afterwards. Reading the memory of a process that was found here is safe. A signal may be
 * sent only to a child that the sender has not yet reaped, because the number of such a child
 * cannot be reused. processes_children() finds the processes to which a signal may be sent.
 *
 * Kernels without CONFIG_PROC_CHILDREN have no lists of children. On such kernels the functions
 * read all of /proc. The results are the same.
 */
#ifndef CAIRN_LAUNCH_PROCESSES_H
#define CAIRN_LAUNCH_PROCESSES_H

#include "base/base.h"

#include <sys/types.h>

/* A list of process numbers. It grows as needed. A list of zeroes is empty. */
struct processes {
    pid_t *pids;
    size_t count;
    size_t capacity;
};

/* processes_children() finds the children of a process; processes_descendants() finds all its
 * descendants. Both replace the contents of the list. Zombies are included. A process is left out
 * only if the launcher has no memory for a longer list. */
void processes_children(pid_t parent, struct processes *list);
void processes_descendants(pid_t ancestor, struct processes *list);

/* Does the same as processes_descendants(), but reads all of /proc even if the kernel has lists of
 * children. Tests compare the two functions. */
void processes_descendants_by_walk(pid_t ancestor, struct processes *list);

/* Gives back the memory of the list, which is empty afterwards. */
void processes_free(struct processes *list);

/* Returns the number of the newest process or thread on this machine, or 0 if it cannot be read.
 * While it does not change, no process was started. */
pid_t processes_newest(void);

/* Returns the process's entry in a reading of the tree: see division.h. Returns false for a zombie,
 * a kernel thread, and a process that does not exist. processes_parse_entry() parses `stat` and
 * `statm`, the contents of two files in /proc/PID. */
struct division_process;
bool processes_read_entry(pid_t pid, struct division_process *entry);
bool processes_parse_entry(const char *stat, const char *statm, struct division_process *entry);

/* Returns whether the process exists and is not a zombie. */
bool processes_is_alive(pid_t pid);

/* The name that the kernel keeps for a process: the beginning of the name of its program. */
struct process_name {
    char data[32];
};

/* Returns the name of a process, also of a zombie. It is "" if there is no such process. */
struct process_name processes_read_name(pid_t pid);

/* The time that the first thread of a process has run, and the time that it was ready to run while
 * others had the CPUs. */
struct process_schedule {
    uint64_t ran_ns;
    uint64_t queued_ns;
};

/* Reads the times of a process, also of a zombie. Returns false, and sets both times to 0, if there
 * is no such process, or if the kernel does not count them. */
bool processes_read_schedule(pid_t pid, struct process_schedule *schedule);

struct process_memory {
    uint64_t anon_bytes;
    uint64_t shmem_bytes;
    uint64_t file_bytes;    /* mapped files: not memory of the program */
    uint64_t highest_bytes; /* highest sum of these sizes since the last exec */
};

/* processes_read_memory() reads the memory of a process. It returns false for a zombie, a kernel
 * thread, and a process that does not exist. processes_parse_memory() parses `text`, the content of
 * /proc/PID/status. */
bool processes_read_memory(pid_t pid, struct process_memory *memory);
bool processes_parse_memory(const char *text, struct process_memory *memory);

/* The memory of a process as read from its page tables, which is exact. A page that several
 * processes map is divided among them, so that it counts once in the sum over all processes.
 * Reading takes longer for larger processes: 30 us plus 10 us per MiB of small OS pages. */
struct process_share {
    uint64_t anon_bytes;
    uint64_t shmem_bytes;
    uint64_t lazy_bytes; /* given back with MADV_FREE, not yet reclaimed */
};

/* processes_read_share() reads the share of a process. processes_parse_share() parses `text`, the
 * content of /proc/PID/smaps_rollup. */
bool processes_read_share(pid_t pid, struct process_share *share);
bool processes_parse_share(const char *text, struct process_share *share);

#endif
