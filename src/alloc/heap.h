/* heap.h - a heap hands out small blocks from its slabs. Each thread has one.
 *
 * Only the owner of a heap calls the functions and writes the fields that are marked (owner only).
 * The owner is the heap's thread, or the holder of the `turn` of a shared heap. The owner allocates
 * without a lock. `lock` guards what other threads may change: the lists of slabs, and the state
 * and owner of each slab on them. Between calls, always:
 *
 *     list[c]     free blocks of the heap's slabs of class c; their slabs count them as live
 *     room[c]     == (warm(c) ? heap_hot(c) : 0) - length(list[c]) + carved(c)
 *     warm(c)     is true if class c was refilled since a slab of the class last became empty
 *     carved(c)   number of blocks that the last refill carved or brought back (slab_trim.h): none,
 *                 a few, or those of one OS page
 *     each slab   is current[c] (state CURRENT), on partial[c] (PARKED), or on `full` (FULL)
 *     empty(c)    number of slabs on partial[c] without a live block: 0 or 1
 *
 * Borrowing: while the process is small, fewer slabs should share its pages. So the first blocks of
 * a class are borrowed from a larger class. `lent[c]` counts the bytes borrowed for class c, in
 * units of 64 bytes. `lent[c]` becomes HEAP_LENT_MOST when class c begins to use slabs of its own:
 * after 16 KiB of borrowed blocks, or when the region has a second chunk. Until then the heap does
 * not use the slabs of class c that it inherited from an ended thread.
 *
 * When a thread ends, its heap keeps its slabs and its lists. The heap becomes idle when another
 * thread ends, or at a sweep. The next thread that begins takes over the whole heap. Other heaps
 * take slabs from idle heaps before they make new slabs.
 *
 * Heaps are never unmapped. A thread that has read a slab's owner may therefore take the owner's
 * lock, and then check that the slab still has this owner. Locks are taken in this order: the list
 * of all heaps, a heap's `turn`, its `lock`, the page heap, the sites (site.h).
 */
#ifndef CAIRN_ALLOC_HEAP_H
#define CAIRN_ALLOC_HEAP_H

#include "alloc/batch.h"
#include "alloc/big_cache.h"
#include "alloc/guarded_block.h"
#include "alloc/hardening.h"
#include "alloc/remote.h"
#include "alloc/run_cache_policy.h"
#include "alloc/site.h"
#include "os/lock.h"

enum {
    HEAP_HOT_BLOCKS = 16,     /* most blocks of a class that are kept hot */
    HEAP_HOT_BYTES = 65536,   /* most bytes of a class that are kept hot */
    HEAP_SCARCE_LEAST = 8,    /* see heap_is_scarce() */
    HEAP_CARVED_MOST = 4096,  /* 16-byte blocks in an OS page of 64 KiB */
    HEAP_HOT_CLASS_ALL = 47,  /* 4 KiB: the last class with HEAP_HOT_BLOCKS */
    HEAP_LENT_UNIT = 64,      /* bytes; the unit of `lent` */
    HEAP_LENT_COARSEST = 64,  /* `lent` below this: borrow from power-of-two classes */
    HEAP_LENT_MOST = 255,     /* `lent` below this: borrow from 4 classes per doubling */
    HEAP_LENT_CLASS_MAX = 55, /* 8 KiB: larger blocks share no OS page anyway */

    /* Memory behind each heap for its quarantine (quarantine.h). */
    HEAP_QUARANTINE_BYTES = CAIRN_HARDENED ? 448 : 0,
};

/* The owner writes the atomic counters, and any thread may read them. The heap's lock guards the
 * other counters. */
struct heap_statistics {
    _Atomic uint64_t refills;       /* times that an empty list was refilled from slabs */
    _Atomic uint64_t slabs_made;    /* new slabs */
    _Atomic uint64_t slabs_adopted; /* slabs taken from idle heaps */
    _Atomic uint64_t posts;         /* posted blocks that the owner collected */
    uint64_t wakes;                 /* full slabs that got room by remote frees */
    uint64_t claims;                /* slabs given back because all live blocks were posted */
};

/* (owner only) The state of heap_trim.h and detour.h. A look is a call of heap_trim() that searches
 * the heap for memory to give back. */
struct heap_trim {
    uint64_t ticks;        /* when `detours` was last raised */
    uint64_t cooled_ticks; /* when detour.c last called heap_cool() */
    uint32_t detours;      /* detours that the thread may still make */
    uint32_t parked;       /* slices: see heap_trim_count() */
    uint32_t epoch;        /* purge_epoch() at the last heap_trim() */
    uint16_t wait;         /* epochs until the next look */
    uint8_t fruitless;     /* looks in a row that gave back little */
    bool due;              /* a look may find something */
    bool large_debt;       /* the last look found much to give back */
    /* For each class: how many parked slabs were used again lately. */
    uint8_t reopened[SIZE_CLASS_COUNT];
};

struct heap {
    struct block *list[SIZE_CLASS_COUNT]; /* (owner only) malloc pops from here */
    int32_t room[SIZE_CLASS_COUNT];       /* (owner only) > 0: free pushes to the list */
    /* A copy of size_class_table. It lies here because malloc already has the heap's address. It is
     * all zero in heap_none. */
    uint8_t class_table[sizeof size_class_table];
    struct slab *current[SIZE_CLASS_COUNT];
    struct site_turn site_turn; /* (owner only) */
    struct run_cache runs;      /* (owner only) */
    struct big_cache *big;      /* (owner only) NULL: no run was ever kept by place */
    uint32_t long_reuses;       /* (owner only) reused runs that were not on lists */
    struct lock lock;
    uint32_t partial[SIZE_CLASS_COUNT];    /* slice index of each list's first slab */
    uint32_t full;                         /* slice index of the first full slab; 0: none */
    uint32_t large;                        /* slice index of a shared heap's first large block */
    uint64_t empty;                        /* a bit per class: empty(c) above */
    uint64_t warm;                         /* (owner only) a bit per class: warm(c) above */
    uint8_t lent[HEAP_LENT_CLASS_MAX + 1]; /* (owner only) in HEAP_LENT_UNIT; never falls */
    struct lock turn;                      /* of a shared heap: the holder is the owner */
    struct heap *next;                     /* in the list of all heaps */
    struct heap *next_idle;                /* in the list of idle heaps */
    bool has_thread;
    /* True if other threads may take the heap or its slabs. Written under heaps_lock and `lock`. */
    _Atomic bool idle;
    _Atomic bool shared; /* in use as a shared heap */
    struct heap_statistics statistics;
    uint64_t batched;              /* (owner only) a bit per batch that is not empty */
    struct batch batches[BATCHES]; /* (owner only) */
    struct heap_trim trim;         /* (owner only) */
};

/* (owner only) Adds to a counter that other threads may read. Returns the sum. */
static inline uint64_t heap_count(_Atomic uint64_t *counter, uint64_t more)
{
    uint64_t sum = atomic_load_explicit(counter, memory_order_relaxed) + more;
    atomic_store_explicit(counter, sum, memory_order_relaxed);
    return sum;
}

/* Returns how many freed blocks of a class the heap keeps on its list. The blocks are reused last
 * in, first out, while they are still in the processor's caches. Their number is bounded, because
 * each of them may be the last live block of its slab, and then keeps the whole slab in use. */
static inline int32_t heap_hot(unsigned class)
{
    if (LIKELY(class <= HEAP_HOT_CLASS_ALL))
        return HEAP_HOT_BLOCKS;
    int32_t fit = HEAP_HOT_BYTES / (int32_t)size_class_bytes(class);
    return fit < HEAP_HOT_BLOCKS ? fit : HEAP_HOT_BLOCKS;
}

/* (owner only) Handles a slab whose `until` has reached 0: parks it, keeps it as the one empty slab
 * of its class, gives its run back, or counts it for the next look. Does nothing if
 * lock_is_unsafe(). */
void heap_event(struct heap *heap, struct slab *slab);

/* (owner only) Like heap_free(), for a block that the heap's list has no room for. heap_free() has
 * already counted the block in `room`. */
static inline void heap_free_to_slab(struct heap *heap, struct slab *slab, struct block *block,
                                     uintptr_t last)
{
    heap->room[slab->class]++;
    if (UNLIKELY(slab_free(slab, block, last)))
        heap_event(heap, slab);
}

/* (owner only) Frees a block of one of the heap's slabs. `last` is slab_key(block, NULL). */
static inline void heap_free(struct heap *heap, struct slab *slab, struct block *block,
                             uintptr_t last)
{
    size_t class = slab->class;
    if (LIKELY(--heap->room[class] >= 0)) {
        slab_mark_by(block, heap->list[class], last);
        slab_interrupt_here(); /* marked before it is on the list */
        heap->list[class] = block;
    } else {
        heap_free_to_slab(heap, slab, block, last);
    }
}

/* (owner only) Takes `block`, the first one of its list, off the list. The caller has checked that
 * the block is marked as free. */
static inline void *heap_pop(struct heap *heap, unsigned class, struct block *block)
{
    heap->list[class] = block->next;
    slab_interrupt_here(); /* off the list before it loses its mark */
    heap->room[class]++;
    block->key = 0;
    return block;
}

/* (owner only) Sets the room of a list that has just been filled. `count` is the number of its
 * blocks without those that the refill carved. */
static inline void heap_set_room(struct heap *heap, unsigned class, uint32_t count)
{
    int32_t most = heap->warm >> class & 1 ? heap_hot(class) : 0;
    heap->room[class] = most - (int32_t)count;
}

/* (owner only) Makes the free blocks of the class's current slab the heap's list, which was empty.
 * Returns false if the slab has no free block. */
static inline bool heap_steal(struct heap *heap, unsigned class)
{
    struct slab *slab = heap->current[class];
    if (slab == NULL || slab->free == NULL)
        return false;
    uint32_t count;
    lock_enter();
    heap->list[class] = slab_steal(slab, &count);
    heap_set_room(heap, class, count);
    lock_leave();
    return true;
}

/* (owner only) Takes the first block off a list that is not empty. Ends the program if the free
 * block was written to. */
void *heap_pop_checked(struct heap *heap, unsigned class);

/* (owner only) Returns a block of the class, or of a larger class. The caller has found list[class]
 * empty. Returns NULL if there is no memory. */
void *heap_refill(struct heap *heap, unsigned class);

/* Frees a block of another owner's slab after remote_post_quick() has failed. Any thread may call
 * this function. If lock_is_unsafe() and the post needs a lock, the block stays allocated. */
void heap_post(struct slab *slab, struct block *block);

/* (owner only) Begins a batch with a block of another owner's slab. If another batch is in the
 * place of the new one (batch_of()), posts that batch first. Returns false if blocks of this slab
 * have to be posted at once. `offset` and `last` are as in batch_add(). */
bool heap_begin_batch(struct heap *heap, struct slab *slab, struct block *block, size_t offset,
                      uintptr_t last);

/* (owner only) Posts a batch that is full. Does nothing if lock_is_unsafe(): the batch then takes
 * more blocks. */
void heap_post_full(struct heap *heap, struct batch *batch) __attribute__((noinline, cold));

/* (owner only) Posts all batches of the heap. The caller has found that lock_is_unsafe() is false,
 * and holds no lock. */
void heap_post_batches(struct heap *heap);

/* Returns a heap for a thread: one whose thread has ended, with its slabs, or a new heap. If
 * `empty` is true, the returned heap has no slabs. Returns NULL if there is no memory. */
struct heap *heap_acquire(bool empty) __attribute__((cold));

/* Called when the heap's thread ends, or when a shared heap is given up. The heap becomes idle, and
 * its large blocks no longer have an owner. */
void heap_release(struct heap *heap);

/* Called when the heap's thread ends. Posts the heap's batches and gives its kept runs back. The
 * heap keeps its lists of blocks until the next thread begins or ends, or until heap_sweep(). So
 * threads that run one after the other find a warm heap. The heap of the previous call becomes
 * idle, unless a thread has taken it since. */
void heap_leave(struct heap *heap);

/* (owner only) Frees all blocks of the heap, also those in use, and makes the heap idle. */
void heap_destroy(struct heap *heap) __attribute__((cold));

/* (owner only) Returns the blocks on the heap's lists to their slabs. The first blocks that are
 * freed from then on go to their slabs, too. */
void heap_cool(struct heap *heap);

/* (owner only) Returns the blocks on the heap's lists to their slabs, collects posted blocks, gives
 * kept runs back, and gives slabs without a live block back. The parked slabs then report no free
 * until the next look (heap_trim.h). */
void heap_collect(struct heap *heap);

/* Gives back every slab, of any heap, whose live blocks are all posted (remote.h says why there are
 * such slabs). Returns the number of these slabs. Before the sweep, makes the heap of the last
 * heap_leave() idle. Any thread that holds no lock may call this function. */
size_t heap_sweep(void);

/* (owner only) Frees the run of a large block, or of a slab that has ended, after run_cache_put()
 * did not keep the run. */
void heap_free_large(struct heap *heap, struct slab *slab);

/* (owner only) Turns the long run that the thread kept into a block of `size` bytes, and returns
 * the block (run_cache_policy_take_long()). Every 64th call also updates the number of slices that
 * the thread may keep, and calls purge_look(). */
void *heap_reuse_long(struct heap *heap, size_t size);

/* (owner only) Returns how many slices the heap keeps for large blocks. */
uint32_t heap_kept_slices(const struct heap *heap);

/* (owner only) Counts a large block for which the heap kept no run. Called only if
 * run_cache_is_learnt(). */
void heap_missed(struct heap *heap);

/* (owner only) Called only if big_cache_is_on(). heap_free_by_place() keeps the run of a freed
 * large block, if its place is known. heap_reuse_by_place() turns a kept run into a block of `size`
 * bytes, and returns the block. It returns NULL if the heap keeps no run that fits.
 * heap_shrink_by_place() gives back one run that is kept by place, so that a heap that grows keeps
 * no runs which it does not use. heap_drain_by_place() gives back all of them. */
void heap_free_by_place(struct heap *heap, struct slab *slab);
void *heap_reuse_by_place(struct heap *heap, size_t size, uint32_t place);
void heap_shrink_by_place(struct heap *heap);
void heap_drain_by_place(struct heap *heap);

/* heap_keep_large() puts a large block on the heap's list `large`. heap_drop_large() takes the
 * block off the list. Any thread may call these functions. */
void heap_keep_large(struct heap *heap, struct slab *slab);
void heap_drop_large(struct heap *heap, struct slab *slab);

/* Returns true if at least HEAP_SCARCE_LEAST heaps are in use, and no heap is idle. */
bool heap_is_scarce(void);

/* Returns the first heap of the list of all heaps, which are linked by `next`. */
struct heap *heap_first(void);

/* Returns the number of posted blocks that no owner collected, because their slab went back to the
 * page heap first. */
uint64_t heap_posts_gone(void);

/* For fork: heap_lock_all() takes all locks of this module, in order, and heap_unlock_all() drops
 * them. In the child, the heap of another thread keeps its slabs forever, except those whose live
 * blocks are all posted. */
void heap_lock_all(void);
void heap_unlock_all(void);

/* For the child of a fork. Of the heaps that have a thread, only `own` still has one. `own` may be
 * heap_none or heap_gone. */
void heap_lose_other_threads(struct heap *own);

/* Guards the lists of all heaps. Only heap.c and heap_locks.c take it. */
extern struct lock heaps_lock __attribute__((visibility("hidden")));

/* The number of heaps that have a thread or are shared. Written under heaps_lock. */
extern _Atomic uint32_t heaps_in_use __attribute__((visibility("hidden")));

/* Returns whether a thread has taken a lock of this module. */
static inline bool heap_has_taken_lock(void)
{
    bool taken = lock_is_taken(&heaps_lock);
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next)
        taken |= lock_is_taken(&heap->turn) || lock_is_taken(&heap->lock);
    return taken;
}

/* Returns true if no thread can change the heap's lists between heap_lock_all() and
 * heap_unlock_all(). */
bool heap_is_at_rest(const struct heap *heap);

/* Asserts the contract of one heap. The heap's thread calls this function, or another thread while
 * the heap's thread cannot run. */
void heap_check(struct heap *heap);

/* Asserts the part of the contract that holds while other threads run: the lists of slabs of every
 * heap. */
void heap_check_lists(void);

/* --- for heap_batch.c, heap_by_place.c and heap_trim.c ---------------------------------------- */

/* Returns how many slices the run cache of each heap may keep now. */
uint32_t heap_run_share(void);

/* Posts blocks with remote_post_locked(), which always succeeds, and then handles the slab as its
 * result says. Takes the lock of the heap that owns the slab. */
void heap_post_locked(struct slab *slab, struct block *first, struct block *last, uint32_t count);

/* (owner only) Moves the posted blocks of a slab to its list `free`. The caller holds the lock of
 * the slab's heap. */
void heap_take_posted(struct heap *heap, struct slab *slab);

/* If `is_empty`, claims the slab, which is on `list`, and gives its run back. `is_empty` says that
 * no block of the slab is in use. Returns `is_empty`. The caller holds the lock of the slab's
 * heap. */
bool heap_claim(uint32_t *list, struct slab *slab, bool is_empty);

enum {
    HEAP_TRIM_SLICES = 64,   /* 1 MiB: with more of them parked or kept, a look is due */
    HEAP_TRIM_COUNTED = 127, /* slab.seen: `trim.parked` counts the slab */
};

/* (owner only) Counts the slices of a slab that was parked, or of a parked slab of which an eighth
 * was freed since the last look. The count begins anew with each look. The caller holds the heap's
 * lock. */
static inline void heap_trim_count(struct heap *heap, struct slab *slab)
{
    slab->seen = HEAP_TRIM_COUNTED;
    heap->trim.parked += atomic_load_explicit(&slab->slices, memory_order_relaxed);
    heap->trim.due |= heap->trim.parked > HEAP_TRIM_SLICES;
}

/* Called when a slab is no longer parked in the heap. Subtracts its slices if they were counted
 * since the last look. The caller holds the heap's lock, and is its owner, or the heap is idle. */
static inline void heap_trim_uncount(struct heap *heap, struct slab *slab)
{
    uint32_t slices = atomic_load_explicit(&slab->slices, memory_order_relaxed);
    if (slab->seen == HEAP_TRIM_COUNTED)
        heap->trim.parked -= slices < heap->trim.parked ? slices : heap->trim.parked;
    slab->seen = 0;
}

/* (owner only) Counts that a parked slab is used again (heap_trim.h). */
static inline void heap_trim_reopened(struct heap *heap, const struct slab *slab)
{
    uint8_t *count = &heap->trim.reopened[slab->class];
    *count = (uint8_t)(*count + (*count < UINT8_MAX));
}

/* Called at the end of heap_event() if there may be memory to give back. Defined by detour.c, which
 * knows the thread's pointer to its heap. */
void heap_due(void);

#endif
