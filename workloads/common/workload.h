/* workload.h - what every workload is made of: a description, parameters, and workers that do batches of operations.
 *
 * A workload is one file that defines `const struct workload workload`. main() is common: it reads the arguments,
 * calls prepare(), starts `--threads` workers that call work() at the same moment, waits, calls conclude(), and prints
 * one line of JSON. A worker does its operations in batches, each timed as one:
 *
 *     for (uint64_t n; (n = worker_next(worker)) > 0;)
 *         for (; n > 0; n--)
 *             one_operation(worker);
 *
 * Always true:
 *
 * - Only malloc's family is measured: what a workload needs for itself comes from table_new(), never from malloc,
 *   unless the workload's subject is a structure that lives in malloc's memory.
 * - The checksum is a sum over all blocks that were freed, so the order in which threads ran does not show in it; with
 *   the same parameters, `--operations` and seed it is the same under every correct allocator. It does not exist under
 *   `--seconds`, where the clock decides how much is done.
 * - Whoever cannot go on (out of memory, a misaligned or non-zero block) says so in one sentence and exits with 1; a
 *   block that lost its contents is counted, the work goes on, and the exit code is 1. Bad arguments exit with 2.
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

/* A number, or one of a list of words, that "--NAME VALUE" sets. The last of an array has no name. */
struct parameter {
    const char *name;
    const char *help;
    uint64_t value;      /* the default, then what was given; of words the place in the list */
    uint64_t least;      /* of a number */
    uint64_t most;       /* of a number; 0: 2^62 */
    const char *choices; /* "json|mir|vm", or NULL for a number */
};

struct worker;

struct workload {
    const char *name;
    const char *title;     /* one line: what happens */
    const char *operation; /* what one operation is */
    struct parameter *own; /* its own parameters, or NULL */
    const char *
        positional; /* names that may be given as plain arguments, in this order: "threads repeats", or NULL */
    uint64_t
        operations; /* default of --operations, over all workers; 0: prepare() sets it from the parameters */
    uint64_t batch;   /* operations that are timed as one */
    unsigned threads; /* default of --threads */
    unsigned threads_least;
    void (*prepare)(void); /* once before the workers start, or NULL */
    void (*work)(struct worker *worker);
    void (*conclude)(void); /* once after they ended, or NULL; may add figures */
};

extern const struct workload workload;

/* What was asked; constant once the workers run. */
struct settings {
    unsigned threads;
    uint64_t operations; /* over all workers; 0 when a time ends them */
    uint64_t seconds_ns; /* 0 when operations end them */
    uint64_t seed;
    enum touch touch;
};
extern struct settings settings;

/* One thread of the workload. Its fields belong to that thread until it ends. */
struct worker {
    unsigned index;       /* 0 … threads - 1 */
    struct random random; /* a stream of its own */
    uint64_t share;       /* operations it has to do; UINT64_MAX under --seconds */
    uint64_t done;
    uint64_t lap_at; /* when the current batch began */
    uint64_t lap_operations;
    uint64_t checksum;
    uint64_t damaged; /* blocks that were freed with other contents than were written */
    uint32_t serial;  /* of the next block */
    int64_t
        live; /* bytes allocated less bytes freed since the last flush; other threads' blocks count too */
    int64_t live_most; /* most it was since the last flush */
    void *own;         /* for the workload */
    struct recorder recorder;
};

/* --- batches --------------------------------------------------------------------------------------------------- */

/* Ends the batch before and begins the next: its number of operations, 0 when this worker's work is done. */
uint64_t worker_next(struct worker *worker);

/* The same by hand, for work that comes in pieces of its own size: begins a batch; ends it after `operations` (0: it
 * leaves no trace, as for time that is not the subject). */
void worker_begin(struct worker *worker);
void worker_end(struct worker *worker, uint64_t operations);

/* Whether time or operations are left; at least one batch is always done. */
bool worker_goes_on(const struct worker *worker);

/* Sleeps, and counts it as idle. Only where nothing else runs: it is wall time that every contender gets back. */
void workload_sleep(uint64_t ns);

/* --- threads --------------------------------------------------------------------------------------------------- */

/* Waits until all workers have come here. Reusable. */
void workers_meet(void);

/* Threads beyond the workers, for workloads about the birth and death of threads: runs `body(argument)` in a new
 * thread. `stack_bytes` 0 is the system's default. Exits with a sentence when there can be none. */
struct thread;
struct thread *thread_start(void *(*body)(void *argument), void *argument, size_t stack_bytes);
void thread_join(struct thread *thread);

/* --- blocks ---------------------------------------------------------------------------------------------------- */

/* A block of malloc's. `start` is NULL where there is none. */
struct block {
    void *start;
    uint32_t size;
    uint32_t serial; /* decides its contents */
};

/* The key of the block's contents. */
uint64_t block_key(const struct block *block);

/* malloc(size), checked, and touched as --touch says. size is 1 to 2^32 - 1. */
struct block block_new(struct worker *worker, size_t size);

/* calloc(1, size), found zero as far as it is touched. */
struct block block_new_zeroed(struct worker *worker, size_t size);

/* aligned_alloc(alignment, size), whose alignment is checked. */
struct block block_new_aligned(struct worker *worker, size_t alignment, size_t size);

/* realloc; what is new is written, and what was there must still be there when the block is read or dropped. */
void block_resize(struct worker *worker, struct block *block, size_t size);

/* Reads what was touched, counts damage, frees; `start` is NULL afterwards. Does nothing without a block. By any
 * thread, whoever allocated it. */
void block_drop(struct worker *worker, struct block *block);

/* Reads what was touched, as block_drop does, and keeps the block: a use between birth and death. It adds to the
 * checksum, so call it a number of times that the seed alone decides. */
void block_read(struct worker *worker, const struct block *block);

/* For structures of malloc's memory that are no `struct block`: a checked malloc (a sentence and exit when there is
 * none, or misaligned), the account of live bytes, and free. What they hold goes into the checksum by worker_sum(). */
void *worker_malloc(struct worker *worker, size_t size);
void *worker_realloc(struct worker *worker, void *start, size_t old_size, size_t size);
void worker_free(struct worker *worker, void *start, size_t size);
void worker_sum(struct worker *worker, uint64_t value);

/* Gives `start` back, or exits with a sentence where it is NULL or less aligned than malloc owes to `size` bytes. */
void *block_checked(void *start, const char *call, size_t size);

/* For what is allocated by other means: so many bytes more are live, or fewer. */
void worker_account(struct worker *worker, int64_t bytes);

/* --- everything else ------------------------------------------------------------------------------------------- */

/* Zeroed memory of the workload's own, from mmap. table_free() with the same size. */
void *table_new(size_t bytes);
void table_free(void *table, size_t bytes);

/* What only this workload can tell; at most 16. `name` ends in its unit: "resident_after_1_s_bytes". */
void workload_figure(const char *name, double value);

/* The value of an own parameter; of words its place in the list. */
uint64_t parameter(const char *name);

/* Resident bytes of this process now, of which lazily freed ones (MADV_FREE) apart. 0 where it cannot be read. The time
 * that this takes, in proportion to what is resident, counts as idle: call it where nothing else runs. */
uint64_t resident_bytes(uint64_t *lazy_bytes);

uint64_t clock_ns(void);

/* One sentence on stderr about arguments that do not go together, and exit(2); for prepare(). */
_Noreturn void workload_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One sentence "NAME: …" on stderr, and exit(1). By any thread. */
_Noreturn void workload_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
