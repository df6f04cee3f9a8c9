/* history.h - predicts the path of each allocation from an earlier run of the program. The path
 * says whether the allocation gets new or reused memory.
 *
 * The address of a block says whether its memory is new or reused, so the path is known only after
 * the call. Callgrind must know the path before the call, because it counts by the name of the
 * caller. The program therefore runs twice. The first run writes the paths of each thread's
 * allocations into a file, and the second run reads them. A program that does the same in each run
 * has the same paths in both. The second run checks each path, and counts those that differ from
 * the first run.
 *
 *     CAIRN_INSTRUCTIONS       the folder of the folders "learnt", "starts" and "told"
 *     CAIRN_INSTRUCTIONS_RUN   "learn" in the first run, and "count" in the second
 *
 *     learnt/PROCESS.THREAD    one byte for each allocation: its enum path
 *     starts/PROCESS           a struct history_account of the first run
 *     told/PROCESS             a struct history_account of the second run
 *
 * PROCESS is "NAME-START": the program's name, and how often the program was started before. The
 * N-th child of a fork adds ".N". THREAD is the number of the thread in its process, in the order
 * of the threads' first operations. If a file cannot be made, every path is PATH_UNTOLD. If the
 * disk is full, or the file reaches the limit of file sizes, every further path is PATH_UNTOLD.
 */
#ifndef CAIRN_INSTRUCTIONS_HISTORY_H
#define CAIRN_INSTRUCTIONS_HISTORY_H

#include "instructions/paths.h"

struct history_account {
    uint64_t allocations;
    uint64_t wrong;    /* paths unlike those of the first run */
    uint64_t nested;   /* operations within other operations */
    char program[256]; /* the path of the program, cut if longer */
    char owner[256];   /* the path of the library that contains malloc */
};

struct history_thread {
    uint64_t place;  /* the number of allocations of the thread so far */
    uint8_t *window; /* a part of the thread's file in memory, or NULL */
    uint64_t begin;  /* the window is the part [begin, end) of the file */
    uint64_t end;
    uint32_t number; /* THREAD in the name of the thread's file */
    bool failed;     /* a window could not be mapped; no other is tried */
};

/* Opens the process's account. `owner` is the path of the library that has the allocator's malloc.
 * Called before any other function, and again in the child of a fork. */
void history_begin(const char *owner);

/* Called before and after a fork. `history_forked` also sets callgrind's counts to zero. */
void history_before_fork(void);
void history_forked(struct history_thread *me);

/* Returns the path of the thread's next allocation. In the first run of the program, the path is
 * always PATH_UNTOLD. */
enum path history_next(struct history_thread *me);

/* Records the path that the allocation had. Counts the allocation as wrong if history_next()
 * returned another path, which is passed as `said`. */
void history_tell(struct history_thread *me, enum path said, enum path path);

void history_count_nested(void);

#endif
