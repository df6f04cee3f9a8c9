/* workload.h - the interface between a workload and the code that all workloads share. A workload
 * has a description, parameters, and workers that do batches of operations.
 *
 * A workload is one file that defines `const struct workload workload`. main() is the same for all
 * workloads. It parses the arguments, calls prepare(), starts `--threads` workers that call work()
 * at the same moment, waits for them, calls conclude(), and prints one line of JSON. A worker does
 * its operations in batches. Each batch is timed as a whole:
 *
 *     for (uint64_t n; (n = worker_next(worker)) > 0;)
 *         for (; n > 0; n--)
 *             one_operation(worker);
 *
 * Always:
 *
 * - Only malloc's family is measured. Memory that a workload needs for itself comes from
 *   table_new(). Only data structures that the workload is about, such as hash tables and trees,
 *   are in malloc's memory.
 * - The checksum is a sum over all blocks that were freed or read, so that the order of the threads
 *   does not matter. With the same parameters, `--operations` and seed the checksum is the same
 *   under every correct allocator. Under `--seconds` there is no checksum, because the clock
 *   decides how many operations are done.
 * - If a workload cannot continue (out of memory, a misaligned or non-zero block), it prints one
 *   sentence and exits with 1. A block that lost its contents is counted, and the work continues;
 *   at the end the program exits with 1. With wrong arguments the program exits with 2.
 */
#ifndef WORKLOAD_WORKLOAD_H
#define WORKLOAD_WORKLOAD_H

#include "common/contents.h"
#include "common/distribution.h"
#include "common/random.h"
#include "common/recorder.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* The option "--NAME VALUE". VALUE is a number or one of a list of words. An array of parameters
 * ends with an element without a name. */
struct parameter {
    const char *name;
    const char *help;
    /* The default, until main() stores the given value. For a word, the index of the word in the
     * list. */
    uint64_t value;
    uint64_t least;      /* smallest number allowed */
    uint64_t most;       /* largest number allowed; 0 stands for 2^62 */
    const char *choices; /* "json|mir|vm", or NULL for a number */
};

struct worker;

struct workload {
    const char *name;
    const char *title;     /* one line that says what the workload does */
    const char *operation; /* one line that says what one operation is */
    struct parameter *own; /* the workload's own parameters, or NULL */
    /* Names of parameters that may be given as plain arguments, in this order: "threads repeats".
     * NULL if there are none. */
    const char *positional;
    /* Default of --operations, over all workers. 0 if prepare() computes it from the parameters. */
    uint64_t operations;
    uint64_t batch;   /* operations that are timed as one */
    unsigned threads; /* default of --threads */
    unsigned threads_least;
    void (*prepare)(void); /* called before the workers start, or NULL */
    void (*work)(struct worker *worker);
    /* Called after the workers ended, or NULL. It may add figures. */
    void (*conclude)(void);
};

extern const struct workload workload;

/* The values of the common options. They do not change while the workers run. */
struct settings {
    unsigned threads;
    uint64_t operations; /* over all workers; 0 under --seconds */
    uint64_t seconds_ns; /* 0 under --operations */
    uint64_t seed;
    enum touch touch;
};
extern struct settings settings;

/* One thread of the workload. The fields belong to that thread until it ends. */
struct worker {
    unsigned index;       /* 0 … threads - 1 */
    struct random random; /* this worker's own stream */
    uint64_t share;       /* operations to do; UINT64_MAX under --seconds */
    uint64_t done;
    uint64_t lap_at; /* when the current batch began */
    uint64_t lap_operations;
    uint64_t checksum;
    uint64_t damaged; /* number of blocks with wrong contents */
    uint32_t serial;  /* serial number of the next block */
    /* Bytes allocated minus bytes freed since the last flush (worker_end). Frees of blocks that
     * other threads allocated are subtracted, too. */
    int64_t live;
    int64_t live_most; /* highest value of `live` since the last flush */
    void *own;         /* free for use by the workload */
    struct recorder recorder;
};

/* Batches. */

/* Ends the current batch and begins the next one. Returns the number of operations of the next
 * batch, or 0 if this worker's work is done. */
uint64_t worker_next(struct worker *worker);

/* A workload that decides the size of a batch itself calls these two functions instead of
 * worker_next(). worker_begin() begins a batch. worker_end() ends it after `operations` operations.
 * If `operations` is 0, the time of the batch is not recorded. */
void worker_begin(struct worker *worker);
void worker_end(struct worker *worker, uint64_t operations);

/* Returns whether time or operations are left. At least one batch is always done. */
bool worker_goes_on(const struct worker *worker);

/* Sleeps and counts the time as idle. Call it only while no other worker runs, because the idle
 * time is subtracted from the wall time. */
void workload_sleep(uint64_t ns);

/* Threads. */

/* Waits until all workers have called this function. May be called repeatedly. */
void workers_meet(void);

/* Starts a thread that is not a worker. Workloads about the birth and death of threads use such
 * threads. The thread runs `body(argument)`. If `stack_bytes` is 0, the stack has the system's
 * default size. Exits with an error if the thread cannot be started. */
struct thread;
struct thread *thread_start(void *(*body)(void *argument), void *argument, size_t stack_bytes);
void thread_join(struct thread *thread);

/* Blocks. */

/* A block from malloc. `start` is NULL if there is none. */
struct block {
    void *start;
    uint32_t size;
    uint32_t serial; /* determines the contents of the block */
};

/* Returns the key of the block's contents. */
uint64_t block_key(const struct block *block);

/* Allocates a block by malloc(size), checks its address, and writes the part that --touch selects.
 * `size` is 1 to UINT32_MAX. */
struct block block_new(struct worker *worker, size_t size);

/* Allocates a block by calloc(1, size), and checks that the part that --touch selects is zero. */
struct block block_new_zeroed(struct worker *worker, size_t size);

/* Allocates a block by aligned_alloc(alignment, size), and checks its alignment. */
struct block block_new_aligned(struct worker *worker, size_t alignment, size_t size);

/* Resizes a block by realloc and writes the new part. The old contents are checked when the block
 * is read or dropped. */
void block_resize(struct worker *worker, struct block *block, size_t size);

/* Reads the touched part, counts damage and frees the block. Sets `start` to NULL. Does nothing if
 * there is no block. Any thread may drop a block, not only the one that allocated it. */
void block_drop(struct worker *worker, struct block *block);

/* Reads the touched part and counts damage, as block_drop does, but keeps the block. The result is
 * added to the checksum, so the number of calls must depend on the seed alone. */
void block_read(struct worker *worker, const struct block *block);

/* These functions are for structures in malloc's memory that are not a `struct block`. They call
 * malloc, realloc and free, and count live bytes. They exit with an error if there is no memory, or
 * if the memory is misaligned. worker_sum() adds the contents of such a structure to the
 * checksum. */
void *worker_malloc(struct worker *worker, size_t size);
void *worker_realloc(struct worker *worker, void *start, size_t old_size, size_t size);
void worker_free(struct worker *worker, void *start, size_t size);
void worker_sum(struct worker *worker, uint64_t value);

/* Returns `start`. Exits with an error if `start` is NULL, or if its alignment is less than malloc
 * must give to `size` bytes. */
void *block_checked(void *start, const char *call, size_t size);

/* Adds `bytes` to the live bytes, for memory that was not allocated by the functions above. `bytes`
 * is negative for a free. */
void worker_account(struct worker *worker, int64_t bytes);

/* Tables, figures and errors. */

/* table_new() returns zeroed memory from mmap, for data of the workload itself. The same `bytes`
 * must be passed to table_free(). */
void *table_new(size_t bytes);
void table_free(void *table, size_t bytes);

/* Adds a figure of this workload to the result. There may be at most 16 figures. `name` ends in the
 * unit, as in "resident_after_1_s_bytes". */
void workload_figure(const char *name, double value);

/* Returns the value of one of the workload's own parameters. For a word, the value is its index in
 * the list. */
uint64_t parameter(const char *name);

/* Returns the resident bytes of this process. Sets `*lazy_bytes` to the part of these bytes that
 * was lazily freed (MADV_FREE). Returns 0 if the bytes cannot be read. The call takes time in
 * proportion to the resident memory, and this time counts as idle. Call it only while no other
 * worker runs. */
uint64_t resident_bytes(uint64_t *lazy_bytes);

uint64_t clock_ns(void);

/* Prints one sentence on stderr about arguments that do not fit together, and exits with 2.
 * prepare() calls it. */
_Noreturn void workload_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints one sentence "NAME: …" on stderr and exits with 1. Any thread may call it. */
_Noreturn void workload_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
