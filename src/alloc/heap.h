/* heap.h - which slab serves a class next; one heap per thread, and what threads leave behind.
 *
 * A heap's thread allocates from it without a lock; `lock` guards what others may change: its lists of slabs, and the
 * states and owner of the slabs on them. Heaps are never unmapped, so that whoever read an owner may take its lock, and
 * then look whether it still is the owner. Between calls, always:
 *
 *     list[c] holds free blocks of the heap's slabs of class c, which count as live there
 *     room[c] is heap_hot(c), or 0 where the bit of `warm` is not set, less the length of list[c], and more by those that
 *     its refill carved: an OS page of them, or one block
 *     a slab of the heap is current[c] (CURRENT), on partial[c] (PARKED), or on `full` (FULL)
 *     at most one slab of a class that is PARKED has no live block: the bit of `empty`
 *
 * While the process is small, the first blocks of a class are those of a coarser one, so that fewer slabs share the pages:
 * `lent` counts them, and is HEAP_LENT_MOST from the first time on that the heap goes to slabs of that class; those that
 * it was left by others are passed by until then.
 *
 * The heap of a thread that has ended is idle and keeps its slabs: the next thread takes it as it is, and until then others
 * take slabs from it before they make new ones. The order of locks: the list of all heaps, a heap's `turn`, its `lock`,
 * the page heap; that of the sites (site.h) is taken last.
 */
#ifndef CAIRN_ALLOC_HEAP_H
#define CAIRN_ALLOC_HEAP_H

#include "alloc/kept_runs.h"
#include "alloc/remote.h"
#include "alloc/site.h"
#include "os/lock.h"

enum {
    HEAP_HOT_BLOCKS = 16,
    HEAP_HOT_BYTES = 65536,
    HEAP_CARVED_MOST =
        4096, /* blocks of a list that were carved for it: of one OS page, of 64 KiB at most */
    HEAP_HOT_CLASS_ALL = 47,  /* up to 4 KiB all of HEAP_HOT_BLOCKS fit */
    HEAP_LENT_UNIT = 64,      /* bytes */
    HEAP_LENT_COARSEST = 64,  /* units, 4 KiB: so many are of the next power of two */
    HEAP_LENT_MOST = 255,     /* units, 16 KiB: until then they are of four classes to a doubling */
    HEAP_LENT_CLASS_MAX = 55, /* 8 KiB: what is larger has OS pages of its own in any slab */
};

struct heap_statistics {      /* the first four are the owner's, the others under the heap's lock */
    _Atomic uint64_t refills; /* times that a class's slabs were asked for blocks */
    _Atomic uint64_t slabs_made;
    _Atomic uint64_t slabs_adopted;
    _Atomic uint64_t
        posts; /* blocks that others gave back to its slabs, and that it has taken from there */
    uint64_t wakes;  /* full slabs to which other threads' frees gave room */
    uint64_t claims; /* slabs whose last block came from another thread */
};

struct heap {
    struct block *list[SIZE_CLASS_COUNT]; /* what malloc pops */
    int32_t room[SIZE_CLASS_COUNT]; /* above 0: free pushes to the list, and not to the slab */
    struct slab *current[SIZE_CLASS_COUNT];
    struct site_turn
        site_turn;         /* (own) but for alloc_count_sites(); beside what is looked at with it */
    struct run_cache runs; /* (own) */
    uint32_t long_reuses;  /* (own) of the long run of `runs` */
    struct lock lock;
    uint32_t partial[SIZE_CLASS_COUNT]; /* first of the list, by slice index */
    uint32_t full;
    uint32_t large; /* large blocks that go when the heap goes: shared_heap.h alone has any */
    uint64_t empty; /* a bit per class */
    uint64_t
        warm; /* a bit per class: between a refill and the next slab of which nothing is live (own) */
    uint8_t lent[HEAP_LENT_CLASS_MAX +
                 1];        /* (own) of a class's blocks, in others' slabs, freed or not */
    struct lock turn;       /* of a heap that is no thread's: whoever holds it is its owner */
    struct heap *next;      /* among all heaps that there ever were */
    struct heap *next_idle; /* among the idle ones */
    bool has_thread;
    _Atomic bool idle; /* any thread may take it, or slabs of it; written under both locks */
    bool shared;       /* in use, and no thread's */
    struct heap_statistics statistics;
};

/* (own) Others read the counter meanwhile. Returns what it is now. */
static inline uint64_t heap_count(_Atomic uint64_t *counter, uint64_t more)
{
    uint64_t sum = atomic_load_explicit(counter, memory_order_relaxed) + more;
    atomic_store_explicit(counter, sum, memory_order_relaxed);
    return sum;
}

/* So many blocks of a class may be handed out again while they are still in the processor's caches, the last freed first,
 * before others of their slab: each may be the only one that keeps its slab. */
static inline int32_t heap_hot(unsigned class)
{
    if (LIKELY(class <= HEAP_HOT_CLASS_ALL))
        return HEAP_HOT_BLOCKS;
    int32_t fit = HEAP_HOT_BYTES / (int32_t)size_class_bytes(class);
    return fit < HEAP_HOT_BLOCKS ? fit : HEAP_HOT_BLOCKS;
}

/* What is to be done when slab->until has come down to 0. (own) */
void heap_event(struct heap *heap, struct slab *slab);

/* (own) Takes back a block of a slab of the heap's, whose slab_key(block, NULL) is `last`. */
static inline void heap_free(struct heap *heap, struct slab *slab, struct block *block,
                             uintptr_t last)
{
    size_t class = slab->class;
    if (LIKELY(--heap->room[class] >= 0)) {
        slab_mark_by(block, heap->list[class], last);
        heap->list[class] = block;
        return;
    }
    ++*(volatile int32_t *)&heap->room
           [class]; /* volatile: else the line above reads, counts, and writes in three steps */
    if (UNLIKELY(slab_free(slab, block, last)))
        heap_event(heap, slab);
}

/* (own) The first block of a list, which says that it is free. */
static inline void *heap_pop(struct heap *heap, unsigned class, struct block *block)
{
    heap->list[class] = block->next;
    heap->room[class]++;
    block->key = 0;
    return block;
}

/* (own) The list, which was empty, has so many blocks that came back. */
static inline void heap_set_room(struct heap *heap, unsigned class, uint32_t count)
{
    int32_t most = heap->warm >> class & 1 ? heap_hot(class) : 0;
    heap->room[class] = most - (int32_t)count;
}

/* (own) What came back to the current slab of the class is the heap's list, which was empty; false: nothing did. */
static inline bool heap_steal(struct heap *heap, unsigned class)
{
    struct slab *slab = heap->current[class];
    if (slab == NULL || slab->free == NULL)
        return false;
    uint32_t count;
    heap->list[class] = slab_steal(slab, &count);
    heap_set_room(heap, class, count);
    return true;
}

/* (own) The first block of a list that is not empty; one that was written to is the end of the program. */
void *heap_pop_checked(struct heap *heap, unsigned class);

/* A block of the class, after list[class] was found empty. NULL when the machine refuses. (own) */
void *heap_refill(struct heap *heap, unsigned class);

/* Gives back a block of a slab whose owner is not the caller, where that takes more than remote_post_quick(). By any thread. */
void heap_post(struct slab *slab, struct block *block);

/* A heap for a thread: one whose thread has ended, with the slabs it has, or a new one; without any slab if it is to be
 * `empty`. NULL when the machine refuses. */
struct heap *heap_acquire(bool empty);

/* The heap's thread ends, or nobody shares it any more: it is idle, and its large blocks are nobody's. */
void heap_release(struct heap *heap);

/* The heap's thread ends. It stays as it is, as if its thread slept, until another begins or ends: threads that come one
 * after the other then find what the last one had at hand. The one that was left before is released. */
void heap_leave(struct heap *heap);

/* The heap is given up, and all of its blocks are, also those that are out. (own) */
void heap_destroy(struct heap *heap);

/* What the heap holds ready goes back to its slabs, what others posted too, and slabs without a live block go back. (own) */
void heap_collect(struct heap *heap);

/* Claims the slabs of all heaps of which every live block is posted: posters and owners leave some, see remote.h. Returns
 * how many. The heap that was left last is released first. By any thread that holds no lock. */
size_t heap_sweep(void);

/* Gives back a large block, or a slab that has ended, whose run the heap's cache did not take at once. (own) */
void heap_free_large(struct heap *heap, struct slab *slab);

/* kept_runs_take_long(); now and then it is looked at what may be kept, and what nobody needs. (own) */
void *heap_reuse_long(struct heap *heap, size_t size);

/* Puts a large block on the heap's list, or takes it off. By any thread. */
void heap_keep_large(struct heap *heap, struct slab *slab);
void heap_drop_large(struct heap *heap, struct slab *slab);

/* The first of all heaps; their `next` leads to the others. */
struct heap *heap_first(void);

/* Blocks that were posted to slabs that have gone back to the page heap with them. */
uint64_t heap_posts_gone(void);

/* For fork: all locks of this module, in order; in the child the heaps of other threads keep what they have, for ever,
 * until every block of a slab has come back from outside. */
void heap_lock_all(void);
void heap_unlock_all(void);

/* Between these two: whether nobody changes meanwhile what the heap has at hand. */
bool heap_is_at_rest(const struct heap *heap);

/* Asserts the contract of one heap; by its thread, or while that cannot run. */
void heap_check(struct heap *heap);

/* Asserts what can be looked at while other threads run: the lists of every heap, and of what threads left. */
void heap_check_lists(void);

#endif
