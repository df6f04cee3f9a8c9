/* site.h - counts large blocks by the place in the program that allocates them. CAIRN_SITES=1 turns
 * the counting on.
 *
 * A site is the return address of the call, the number of slices requested, and eight bits of the
 * stack depth. The depth distinguishes callers of the same wrapper without unwinding the stack.
 * Small blocks have no site. Only slow paths count: the functions of abi/ end in a jump to them, so
 * that the return address lies in the program's code.
 *
 * The table of sites is one run of slices, which is allocated once. A site stays in it forever. If
 * the table is full or the caller is unknown, a block counts for the last row, which sums up all
 * other sites (site_others()). The record of a counted block holds its row, its weight, and the
 * time of its allocation (slab.h).
 *
 * Each thread counts its first SITE_ALL blocks. After that, it samples: it counts one random block
 * of each two, SITE_EACH times, then one random block of each four, SITE_EACH times, and so on. A
 * sampled block stands for two blocks, four blocks, and so on: this number is its weight. The
 * totals are therefore unbiased estimates, and `variance` bounds their error. A thread that takes
 * over the heap of an ended thread continues that heap's sequence. Every block of a heap that
 * belongs to no thread is counted, and so is every block of a thread without a heap.
 *
 * Before site_begin(), nothing is counted. The only cost is then a check in slow paths, and a
 * countdown when a large block reuses a kept run. After site_begin(), every counted block is
 * allocated in a slow path, even if the thread had kept its run. The owner of a counted block is a
 * shared heap or the mark of site_keeps(), so that the free of the block takes a slow path, too.
 * Between calls, always, for every row:
 *
 *     hits <= blocks, freed <= blocks, and counted <= blocks
 *     sum of lives[] == freed
 *     live_bytes == 0 if and only if freed == blocks
 *     variance == 0 if and only if counted == blocks
 *
 * and for the table: at most SITE_MOST rows are filled, and no row between a site's hash and its
 * row is empty.
 *
 * Any thread may count. The lock of the sites is taken only in slow paths, and after any other lock
 * except that of the guarded blocks.
 */
#ifndef CAIRN_ALLOC_SITE_H
#define CAIRN_ALLOC_SITE_H

#include "alloc/slab.h"
#include "base/random.h"

enum {
    SITE_SLOTS = 1024,
    SITE_MOST = 768,
    SITE_ALL = 512,      /* the first blocks of a heap, which are all counted */
    SITE_EACH = 64,      /* samples before the weight doubles */
    SITE_DOUBLINGS = 10, /* so a weight is at most 1024 */
    SITE_LIVES = 8,

    /* lives[0] counts lifetimes below 2^SITE_LIFE_FIRST ns (a microsecond), lives[1] those below
     * 2^SITE_LIFE_STEP = 16 times as much, and so on. The last element counts all others. */
    SITE_LIFE_FIRST = 10,
    SITE_LIFE_STEP = 4,
};

struct site {
    uintptr_t address; /* return address; 0: empty row, or the last row */
    uint32_t slices;   /* slices requested */
    uint32_t depth;    /* eight bits of the stack depth */
    uint64_t counted;  /* number of counted blocks, each counted as one */
    uint64_t variance; /* upper bound of the variance of `blocks` */

    /* The following fields are estimates: every counted block adds its weight. */
    uint64_t blocks;            /* blocks handed out, ever */
    uint64_t bytes;             /* total size of `blocks` when they were handed out */
    uint64_t hits;              /* blocks that reused a run which the thread had kept */
    uint64_t freed;             /* blocks freed */
    uint64_t live_bytes;        /* bytes of the blocks that are not freed */
    uint64_t lives[SITE_LIVES]; /* freed blocks by lifetime */
};

/* A heap's place in the sequence of samples. If all its fields are zero, the next block is counted.
 * Not used while sites are not counted. */
struct site_turn {
    uint32_t left;    /* blocks before the next counted one */
    uint32_t counted; /* blocks counted so far */
    uint32_t behind;  /* blocks that follow the last sample in its group */
    struct random random;
};

extern struct site *site_table __attribute__((visibility("hidden")));

/* Returns whether sites are counted. This is decided before the program has a second thread. */
static inline bool site_is_counted(void)
{
    return site_table != NULL;
}

/* True if every large block is allocated in a slow path that knows its caller. This is so if sites
 * are counted, or if runs are kept by place (big_cache.h). */
extern bool site_matters __attribute__((visibility("hidden")));

/* Counts sites from now on. Returns false if the machine refuses memory for the table of sites.
 * Takes the page heap's lock. */
bool site_begin(void);

/* Counts a large block that was allocated for the caller at return address `caller` (NULL:
 * unknown), who requested `slices` slices. `hit` says that the block lies in a run that the thread
 * had kept. `turn` is the heap's place in the sequence of samples; if it is NULL, the block has
 * weight 1. Called only while sites are counted. The stack depth of the site is measured within
 * this function. All calls for one caller must therefore come from the same stack depth, or they
 * count for several sites. */
void site_take(struct slab *slab, size_t slices, const void *caller, bool hit,
               struct site_turn *turn);

/* Counts the end of a large block, which is freed or moved. Called before another thread can get
 * the run. Does nothing if no site counts the block. */
void site_give_back(struct slab *slab);

/* Returns whether `owner` marks a block that a site counts or that big_cache.h may keep, and that
 * belongs to no heap. The mark is an address to compare with: there is no heap at it. */
static inline bool site_keeps(const struct heap *owner)
{
    return owner == (const struct heap *)&site_table;
}

/* Returns the owner that a large block without a heap must have: the mark of site_keeps() if a site
 * counts the block or big_cache.h may keep it, else NULL. */
struct heap *site_keeper(const struct slab *slab);

/* Counts the new length of a block that was resized in place from `before` slices. */
void site_resize(struct slab *slab, size_t before);

/* For reports and for fork: nothing is counted between the two calls. */
void site_lock(void);
void site_unlock(void);

/* Returns whether a thread has taken the lock. */
bool site_has_taken_lock(void);

/* The caller of the following three functions holds the lock (site_lock()). site_next() walks the
 * sites in order of `bytes`, the largest first: it returns the first site for NULL, and NULL after
 * the last site. site_others() returns the row that sums up all sites without a row of their own.
 * site_count() returns the number of sites that have a row. */
const struct site *site_next(const struct site *before);
const struct site *site_others(void);
uint32_t site_count(void);

/* Returns whether there is a site with begin < address <= end. Takes the lock. */
bool site_is_within(uintptr_t begin, uintptr_t end);

/* Asserts the contract. Takes the lock. */
void site_check(void);

#endif
