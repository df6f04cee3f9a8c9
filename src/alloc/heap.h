/* heap.h - which slab serves a class next; one heap per thread, and what threads leave behind.
 *
 * A heap's thread allocates from it without a lock; `lock` guards what others may change: its lists of slabs, and the
 * states and owner of the slabs on them. Heaps are never unmapped, so that whoever read an owner may take its lock, and
 * then look whether it still is the owner. Between calls, always:
 *
 *     list[c] holds blocks of current[c] alone, which count as live there
 *     a slab of the heap is current[c] (CURRENT), on partial[c] (PARKED), or on `full` (FULL)
 *     at most one slab of a class that is PARKED has no live block: the bit of `empty`
 *
 * Slabs of threads that have ended are on a list per class with a lock of its own. The order of locks: the
 * list of all heaps, a heap's `turn`, its `lock`, a list of orphans, the page heap.
 */
#ifndef CAIRN_ALLOC_HEAP_H
#define CAIRN_ALLOC_HEAP_H

#include "alloc/remote.h"
#include "alloc/run_cache.h"
#include "os/lock.h"

struct heap_statistics {      /* the first four are the owner's, the others under the heap's lock */
    _Atomic uint64_t refills; /* times that a list was empty */
    _Atomic uint64_t slabs_made;
    _Atomic uint64_t slabs_adopted;
    _Atomic uint64_t posts; /* blocks that its thread gave back to slabs of others */
    uint64_t wakes;         /* full slabs to which other threads' frees gave room */
    uint64_t claims;        /* slabs whose last block came from another thread */
};

struct heap {
    struct block *list[SIZE_CLASS_COUNT]; /* what malloc pops */
    struct slab *current[SIZE_CLASS_COUNT];
    struct run_cache runs; /* (own) */
    struct lock lock;
    uint32_t partial[SIZE_CLASS_COUNT]; /* first of the list, by slice index */
    uint32_t full;
    uint32_t large;         /* large blocks that go when the heap goes: shared_heap.h alone has any */
    uint64_t empty;         /* a bit per class */
    struct lock turn;       /* of a heap that is no thread's: whoever holds it is its owner */
    struct heap *next;      /* among all heaps that there ever were */
    struct heap *next_idle; /* among those without a thread */
    bool has_thread;
    bool shared; /* in use, and no thread's */
    struct heap_statistics statistics;
};

/* (own) Others read the counter meanwhile. */
static inline void heap_count(_Atomic uint64_t *counter)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* What came back to the current slab of the class is the heap's list, which was empty; false: nothing did. (own) */
static inline bool heap_steal(struct heap *heap, unsigned class)
{
    struct slab *slab = heap->current[class];
    if (slab == NULL || slab->free == NULL)
        return false;
    heap->list[class] = slab_steal(slab);
    return true;
}

/* A block of the class, after list[class] was found empty. NULL when the machine refuses. (own) */
void *heap_refill(struct heap *heap, unsigned class);

/* What is to be done when slab->until has come down to 0. (own) */
void heap_event(struct heap *heap, struct slab *slab);

/* Gives back a block of a slab whose owner is not the caller, or nobody. By any thread; `poster` is its heap, NULL: it has
 * none. */
void heap_post(struct heap *poster, struct slab *slab, struct block *block);

/* A heap for a thread: one whose thread has ended, or a new one. NULL when the machine refuses. */
struct heap *heap_acquire(void);

/* The heap's thread ends: its slabs become orphans, or go back; its large blocks are nobody's. */
void heap_release(struct heap *heap);

/* The heap is given up, and all of its blocks are, also those that are out. (own) */
void heap_destroy(struct heap *heap);

/* What the heap holds ready goes back to its slabs, what others posted too, and slabs without a live block go back. (own) */
void heap_collect(struct heap *heap);

/* Claims the slabs of all heaps of which every live block is posted: posters and owners leave some, see remote.h. Returns
 * how many. By any thread that holds no lock but a turn. */
size_t heap_sweep(void);

/* Gives back a large block: the heap keeps its run, or does not. (own) */
void heap_free_large(struct heap *heap, struct slab *slab);

/* Puts a large block on the heap's list, or takes it off. By any thread. */
void heap_keep_large(struct heap *heap, struct slab *slab);
void heap_drop_large(struct heap *heap, struct slab *slab);

/* The first of all heaps; their `next` leads to the others. */
struct heap *heap_first(void);

/* Orphans whose last block came back; with all locks held. */
uint64_t heap_orphan_claims(void);

/* What threads without a heap have posted. */
uint64_t heap_posts_of_nobody(void);

/* For fork: all locks of this module, in order; in the child the heaps of other threads keep what they have, for ever,
 * until every block of a slab has come back from outside. */
void heap_lock_all(void);
void heap_unlock_all(void);

/* Asserts the contract of one heap; by its thread, or while that cannot run. */
void heap_check(struct heap *heap);

/* Asserts what can be looked at while other threads run: the lists of every heap, and of what threads left. */
void heap_check_lists(void);

#endif
