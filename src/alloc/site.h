/* site.h - what each place of the program does with large blocks, where CAIRN_SITES=1 asks for it.
 *
 * A site is the address behind the call, how many slices were asked for, and eight bits of the depth of the stack, which
 * tell those apart who call the same wrapper; nothing is unwound. Cold doors alone count: the names of abi/ end in a jump
 * to them, so that their return address is the program's. Small blocks have no site.
 *
 * The table is one run of slices, taken once; a site stays in it for ever. When it is full, and where nobody knows the
 * caller, a block counts for the row of others. The record of a block says for which row, for how many, and since when
 * (slab.h).
 *
 * Of each thread's blocks the first SITE_ALL are counted, then one at random of each two that follow, of each four, and so
 * on: it counts for so many. What the rows say is then an estimate that is right on average, and `variance` says how far
 * off it is at most. A thread that takes an ended one's heap goes on with its turns. Blocks of heaps that are no thread's
 * are all counted, and those of threads that have none.
 *
 * Until site_begin() nothing is counted, and nothing is different. From then on a block that counts comes by the cold door,
 * also of a run that the thread had kept, and site_keeps() its owner, so that it goes by one. Between calls, always, of every row:
 *
 *     hits <= blocks and freed <= blocks
 *     the sum of `lives` is `freed`
 *     live_bytes is 0 where all blocks were freed, and nowhere else
 *     counted <= blocks, and `variance` is 0 where they are equal, and nowhere else
 *
 * and of all rows: at most SITE_MOST are filled, and each is found from its hash on, before the first that is empty.
 *
 * The lock is taken last, after any other, and by cold doors alone.
 */
#ifndef CAIRN_ALLOC_SITE_H
#define CAIRN_ALLOC_SITE_H

#include "alloc/slab.h"
#include "base/random.h"

enum {
    SITE_SLOTS = 1024,
    SITE_MOST = 768,
    SITE_ALL = 512, /* a heap's blocks until which each is counted */
    SITE_EACH = 64, /* that are counted for as many others each, and then for twice as many */
    SITE_DOUBLINGS = 10,
    SITE_LIVES = 8,
    SITE_LIFE_FIRST = 10, /* bits of ns: lives[0] has those below a microsecond, */
    SITE_LIFE_STEP = 4,   /* [1] those below 16 times as long, and so on; the last all others */
};

struct site {
    uintptr_t address; /* behind the call; 0: the row is empty, or that of others */
    uint32_t slices;   /* asked for */
    uint32_t depth;
    uint64_t
        counted; /* blocks that were looked at; all that follows is of these and of those that they stand for */
    uint64_t variance; /* of `blocks` */
    uint64_t blocks;   /* ever */
    uint64_t bytes;    /* of these, as they were handed out */
    uint64_t hits;     /* of these, runs that the thread had kept */
    uint64_t freed;    /* of these */
    uint64_t live_bytes;
    uint64_t lives[SITE_LIVES];
};

/* Which of a thread's blocks is counted next; zeroed, it is the first. Where no site counts, `left` is for the quick path
 * alone, which looks at it and nothing else. */
struct site_turn {
    uint32_t left;    /* blocks until then */
    uint32_t counted; /* so far */
    uint32_t behind;  /* of those that the last one stands for, blocks that came after it */
    struct random random;
};
enum { SITE_TURN_LONG = 1 << 16 }; /* `left` where no site counts */

extern struct site *site_table __attribute__((visibility("hidden")));

/* Written before the program has a second thread. */
static inline bool site_is_counted(void)
{
    return site_table != NULL;
}

/* From now on; the caller zeroes all turns. False: the machine refuses a table. Takes the page heap's lock. */
bool site_begin(void);

/* A large block was made for who called from `caller`, NULL: not known, and asked for so many slices; `hit`: of a run that
 * the thread had kept. It is the turn's next, NULL: each counts. While sites are counted; called from where the stack is
 * equally deep for equal callers. */
void site_take(struct slab *slab, size_t slices, const void *caller, bool hit,
               struct site_turn *turn);

/* It is none any more, or not in this place; the run may be anybody's afterwards. What no site counts is passed over. */
void site_give_back(struct slab *slab);

/* Whether that is the owner of a block that a site counts and that is no heap's: an address, and no heap. */
static inline bool site_keeps(const struct heap *owner)
{
    return owner == (const struct heap *)&site_table;
}

/* The owner of a large block that is no heap's: NULL where no site counts it. */
struct heap *site_keeper(const struct slab *slab);

/* It has another length in the same place, and had so many slices before. */
void site_resize(struct slab *slab, size_t before);

/* For who tells, and for fork: nothing is counted between the two. */
void site_lock(void);
void site_unlock(void);

/* Between these two. The sites one after the other, those with the most bytes first: the first for NULL, NULL after the
 * last. */
const struct site *site_next(const struct site *before);
const struct site *site_others(void);
uint32_t site_count(void);

/* Whether a site lies behind `begin` and not behind `end`. Takes the lock. */
bool site_is_within(uintptr_t begin, uintptr_t end);

/* Asserts the contract. Takes the lock. */
void site_check(void);

#endif
