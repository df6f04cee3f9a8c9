/* division.h - divides the memory of a tree among its processes, and finds what was copied after a
 * fork. It makes no system calls; memory.h makes the readings.
 *
 * After a fork, parent and child share all anonymous pages. If one of them writes to a shared page,
 * the kernel gives it a copy of that page. The size of a process stays the same, because the copy
 * takes the place of the shared page, but the memory of the tree grows by one page.
 *
 * Processes that began by forks from one another, without exec, are a family. In each family, the
 * largest process counts with all its pages. Every other process counts with its growth: its size
 * minus the size that it had when it was forked, `inherited`. The process that began the family was
 * not forked by any of them. If it is not the largest, `inherited` of the largest process is used
 * for it. If no page had been copied, the sum would be the memory of the tree, in which the kernel
 * counts a shared page once. So always:
 *
 *     copied = anonymous memory of the tree - the sum of these sizes and growths
 *     0 <= copied <= sum of `inherited` over all processes but the largest of each family
 *     largest + copied <= total
 *
 * A write to a shared page is a page fault that does not let the process grow. So the number of
 * shared pages that a process wrote is about its faults since the fork minus its growth in pages.
 * The few faults on pages of files are included. If both processes write to the same page, it is
 * copied once and counted in both.
 *
 * Of all readings, the one with the most memory is kept. A process is known from the first reading
 * after its fork, so `inherited` is found from the readings before and after the fork.
 */
#ifndef CAIRN_LAUNCH_DIVISION_H
#define CAIRN_LAUNCH_DIVISION_H

#include "base/base.h"

#include <sys/types.h>

/* A tree with more processes is not divided. */
#define DIVISION_PROCESSES_MAX 128

/* One process in a reading. */
struct division_process {
    pid_t pid;
    pid_t parent;
    uint64_t started; /* when the process began; its number may be reused */
    uint64_t stack;   /* start address of the stack, which exec changes */
    bool forked;      /* the process began by fork and has not called exec */
    uint64_t anon_bytes;
    uint64_t faults; /* minor page faults since the process began */
};

struct division_result {
    size_t processes;
    uint64_t total_bytes;   /* anonymous and shared memory of the tree */
    uint64_t largest_bytes; /* anonymous memory of the largest process */
    /* False if copied_bytes is not known, because the measured memory of the tree counts a shared
     * page once for each process. */
    bool has_copied;
    uint64_t copied_bytes; /* memory that was copied after forks */
    uint64_t child_pages;  /* shared pages that children wrote to */
    uint64_t parent_pages; /* shared pages that parents wrote to */
};

/* A process since its first reading. */
struct division_known {
    struct division_process now;
    uint64_t family; /* number of the process's family */
    bool seen;       /* found by the reading in progress */
    bool is_child;   /* the parent process is of the same family */
    bool has_child;  /* a child of the process was found */
    /* Size and faults of the process when it was forked. For the process that began the family:
     * when its first child was forked. */
    uint64_t inherited_bytes;
    uint64_t faults_before;
};

struct division {
    uint64_t page_bytes;
    uint64_t families; /* number given to the last family */
    size_t count;
    struct division_known known[DIVISION_PROCESSES_MAX];
    struct division_result result; /* total_bytes is 0 before the first reading */
};

struct division division_begin(uint64_t page_bytes);

/* Adds a reading of all processes, and sorts them by their age. `anon_bytes` and `shmem_bytes` are
 * the memory of the tree. `shared_once` is true if a page that processes share counts once in
 * `anon_bytes`. A reading without processes, or with too many of them, changes nothing. */
void division_add(struct division *division, struct division_process *processes, size_t count,
                  uint64_t anon_bytes, uint64_t shmem_bytes, bool shared_once);

/* Asserts the last inequality at the top of this file. */
void division_check(const struct division *division);

#endif
