/* slab.h - a slab divides a run of slices into equal blocks: it hands them out and takes them back.
 *
 * The slab is the record of the run's first slice. The records of the other slices only hold the
 * distance back to it. One heap owns a slab. Only the owner, which is the thread of that heap,
 * writes the fields and calls the functions that are marked (owner only). Any other thread frees
 * blocks by posting them to the slab (remote.h).
 *
 * A block is in exactly one place: in use by the program, on the list of the owner's heap, on
 * `free`, among the posted blocks, or not yet carved (made from memory that was never handed out).
 * A live block is one that is in use, on the heap's list, or posted. Between calls, always:
 *
 *     until + rest == number of live blocks: slab_live()
 *     carved - slab_live() == length(free), apart from the hidden blocks of slab_trim.h
 *     bound == carved * step(class), where step(class) == inverse * size_class_bytes(class) - 2^32,
 *         or bound == 0 while OS pages of the slab are away (slab_trim.h)
 *     carved <= capacity; if `zero`, the blocks that are not carved were never touched
 *     rest == 0, unless the state is FULL or PARKED
 *
 * A local free first writes `free` and then decrements `until`. A thread that holds the lock of the
 * slab's heap, while no thread allocates from the slab, therefore reads a slab_live() that is exact
 * or too high, never too low. A thread without the lock may read `until` and `rest` at different
 * moments, and their sum is only a hint.
 *
 * `until` is the only counter that a local free changes, whatever the state of the slab is. When
 * `until` reaches 0, the owner calls heap_event(). This happens after an eighth of the slab's
 * blocks, at least one, were freed
 *
 *     since the slab became FULL: the owner then parks it, and can allocate from it again
 *     since the last look at a PARKED slab (heap_trim.h): there may be something to give back
 *
 * and, for any slab, when all blocks are free.
 *
 * A free block holds a pointer to the next one, and a key that marks it as free.
 */
#ifndef CAIRN_ALLOC_SLAB_H
#define CAIRN_ALLOC_SLAB_H

#include "alloc/region.h"
#include "alloc/size_class.h"

#include <stdatomic.h>

struct heap;

struct block {
    struct block *next;
    uintptr_t key; /* slab_key() if the block is free; else any value */
};

enum run_kind {
    RUN_NONE = 0, /* no run begins here */
    RUN_TAIL,     /* a slice of a slab, but not its first slice */
    RUN_SLAB,
    RUN_LARGE,  /* one large block (large.h) */
    RUN_CACHED, /* free, and kept by a thread (run_cache.h) */
    RUN_OWN,    /* used by the allocator itself, as for heaps */
    RUN_LOST,   /* a slice that is no longer mapped: large.c */
};

/* The record of a slice. Large blocks use some of its fields, too (large.h). */
struct slab {
    /* The heap that owns the slab. A slab that has blocks changes its owner under the lock of the
     * former owner. For a large block: NULL, the mark of site_keeps(), or the heap that the block
     * belongs to. NULL if no run begins at this slice. */
    _Alignas(RECORD_BYTES) _Atomic(struct heap *) owner;
    union {
        struct block *free; /* (owner only) freed blocks, newest first */
        uint64_t born_ns;   /* RUN_LARGE that site.h counts: time of allocation */
    };
    _Atomic uint32_t until; /* (owner only) local frees left until heap_event() */
    union {
        _Atomic uint32_t rest; /* (owner only) live blocks that `until` does not count */
        uint32_t place;        /* RUN_LARGE: big_cache_place(); 0: not known */
    };
    _Atomic uint64_t posted; /* posted blocks and state: see remote.h */

    /* Neighbours on the list that the slab is on, by slice index. The slab's state says which list
     * this is. The heap's lock guards them. */
    uint32_t next;
    uint32_t prev;

    _Atomic uint32_t slices; /* length of the run */
    union {
        uint32_t back; /* RUN_TAIL: number of slices of the run before this one */

        /* RUN_SLAB: OS pages that were given back; see slab_trim.h. */
        _Atomic uint32_t away;

        /* RUN_LARGE longer than RUN_CACHE_RUN_MAX: number of slices that the program did not
         * request. */
        uint32_t slack;
    };
    uint16_t capacity;       /* number of blocks that fit into the slab */
    _Atomic uint16_t carved; /* (owner only) number of blocks that exist so far */
    union {
        uint32_t inverse; /* see slab_begins() */
        uint32_t site;    /* RUN_LARGE: see site.c */
    };
    union {
        _Atomic uint32_t bound; /* (owner only) see slab_begins() */
        _Atomic uint32_t end;   /* RUN_LARGE: see large_guard.h */
    };
    uint8_t class;
    _Atomic uint8_t kind; /* enum run_kind; constant while the run is in use */
    uint8_t zero;         /* the memory that is not carved reads as zero */
    union {
        uint8_t moved; /* RUN_LARGE: large_move() has moved its pages */
        uint8_t seen;  /* RUN_SLAB: see heap_trim.c */
    };
};
_Static_assert(sizeof(struct slab) == RECORD_BYTES, "the records are packed: one cache line each");

/* Returns the slices of a slab of this class: the fewest that hold four blocks and waste at most a
 * sixteenth at the end. */
static inline size_t slab_slices(unsigned class)
{
    size_t bytes = size_class_bytes(class);
    size_t slices = (4 * bytes + SLICE_BYTES - 1) / SLICE_BYTES;
    while ((slices << SLICE_SHIFT) % bytes > (slices << SLICE_SHIFT) / 16)
        slices++;
    return slices;
}

static inline struct slab *slab_at(size_t index)
{
    return region_record(index);
}

static inline size_t slab_index(const struct slab *slab)
{
    return region_record_index(slab);
}

static inline char *slab_start(const struct slab *slab)
{
    return region_address(slab_index(slab));
}

/* Turns a run of slab_slices(class) slices into an empty slab of `owner`, and returns the slab. No
 * block is carved yet. `zero` is true if the run reads as zero. */
struct slab *slab_create(size_t index, unsigned class, struct heap *owner, bool zero);

/* Ends the program, which has misused the memory at `p`, with one line on stderr and abort(). The
 * line says `what` happened, the address, and the size class of the slab there, or the bytes of the
 * large block or kept run that begins there. Any thread may call this function with any `p`. */
_Noreturn void slab_misused(const char *what, const void *p) __attribute__((cold));

/* Returns the OS pages of the slab that were given back, a bit each (slab_trim.h). */
static inline uint32_t slab_away(const struct slab *slab)
{
    return atomic_load_explicit(&slab->away, memory_order_relaxed);
}

/* (owner only) Sets the OS pages of the slab that are away. */
void slab_set_away(struct slab *slab, uint32_t away);

/* Returns the number of the first carved block that begins on an OS page of the slab or behind it.
 * Returns the number of carved blocks if there is none. */
uint32_t slab_first_on(const struct slab *slab, unsigned page);

/* Returns the number of hidden blocks (slab_trim.h). */
uint32_t slab_hidden(const struct slab *slab);

/* Returns whether a block, which begins `offset` bytes behind the start of the slab, is hidden. */
bool slab_is_hidden(const struct slab *slab, size_t offset);

/* Ends the program unless every carved block is marked as free. Called for a slab without live
 * blocks before its run is given back: if the program wrote to a free block, the counts can be
 * wrong, and a block may still be in use. */
void slab_is_free(const struct slab *slab);

/* Called before a slab with live blocks is ended. In the hardened build, makes all its memory read
 * as zero (hardening.h). Returns the slab. */
struct slab *slab_wipe(struct slab *slab);

/* Ends the slab, whose blocks are all unused. The caller then gives back the run. */
void slab_destroy(struct slab *slab);

/* Returns the number of live blocks. The comment at the top of this file says when the number is
 * exact. */
static inline uint32_t slab_live(struct slab *slab)
{
    return atomic_load_explicit(&slab->until, memory_order_acquire) +
           atomic_load_explicit(&slab->rest, memory_order_relaxed);
}

/* Divides the `live` blocks of a slab, one or more, between `until` and `rest`, so that `until`
 * reaches 0 after an eighth of the slab's blocks, at least one, were freed. The caller holds the
 * lock of the slab's heap. A thread without the lock may meanwhile read too many live blocks. */
static inline void slab_divide_live(struct slab *slab, uint32_t live)
{
    uint32_t until = slab->capacity / 8 < live ? slab->capacity / 8 : live;
    if (until == 0)
        until = 1;
    atomic_store_explicit(&slab->rest, live - until, memory_order_relaxed);
    atomic_store_explicit(&slab->until, until, memory_order_release);
}

/* (owner only) Carves blocks and links them in address order. The blocks count as live. Returns the
 * first of them and sets `*count` to their number, or returns NULL if all blocks are carved
 * already. Carves at least one block, and then no further than the OS page in which that block
 * ends, so that pages are touched as late as possible. The hardened build links the blocks in
 * random order, and carves at least HARDENING_CARVED_LEAST of them if as many are left. In memory
 * that was used before, the function carves at least 8 blocks, if as many are left. */
struct block *slab_carve(struct slab *slab, uint32_t *count);

/* (owner only) Frees the list of `count` live blocks that begins with `first`, and moves `rest`
 * into `until`. Ends the program if a block of the list was written to, or is in it twice. */
void slab_take_back(struct slab *slab, struct block *first, uint32_t count);

/* The secret part of the keys of free blocks. It differs between processes, except for children of
 * fork(), which have that of their parent. */
extern uintptr_t slab_secret __attribute__((visibility("hidden")));

/* Returns the key of a free block at `block` that is followed by `next`. A write over the link, the
 * key, or both, by code that does not know the secret, is noticed before the link is followed. */
static inline uintptr_t slab_key(const struct block *block, const struct block *next)
{
    return slab_secret ^ (uintptr_t)block ^ (uintptr_t)next;
}

/* Returns whether a block is marked as free. */
static inline bool slab_is_marked(const struct block *block)
{
    return block->key == slab_key(block, block->next);
}

/* Marks a block as free, and links `next` behind it. */
static inline void slab_mark(struct block *block, struct block *next)
{
    block->next = next;
    block->key = slab_key(block, next);
}

/* Returns a list with its first two blocks exchanged. Returns `first` if it is NULL or the only
 * block. If the program wrote to one of the two, they stay as they are, so that the check before
 * the block is handed out finds the write. */
static inline struct block *slab_second_first(struct block *first)
{
    if (first == NULL || !slab_is_marked(first) || first->next == NULL ||
        !slab_is_marked(first->next))
        return first;
    struct block *second = first->next;
    slab_mark(first, second->next);
    slab_mark(second, first);
    return second;
}

/* A function that takes no lock may be interrupted by a signal handler at any instruction. The
 * handler may fork, and its child may allocate. The compiler moves no access to memory across this
 * call. So a handler that interrupts behind it finds all writes that stand before it in the
 * source. */
static inline void slab_interrupt_here(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* (owner only) Takes all blocks of `free` from a CURRENT slab, so that all carved blocks count as
 * live. Returns the first of the taken blocks and sets `*count` to their number. The key of a block
 * is not checked here, but when the block is handed out. If there are two blocks or more, the block
 * that was freed last is not the first of them: a program that still uses it after its free then
 * does not share it with the next block. */
static inline struct block *slab_steal(struct slab *slab, uint32_t *count)
{
    struct block *first = slab_second_first(slab->free);
    *count = slab->carved - atomic_load_explicit(&slab->until, memory_order_relaxed);
    slab->free = NULL;
    atomic_store_explicit(&slab->until, slab->carved, memory_order_relaxed);
    return first;
}

/* The next two functions are slab_is_marked() and slab_mark() for a caller that knows `last` ==
 * slab_key(block, NULL). The secret is then read only once. */
static inline bool slab_is_marked_by(const struct block *block, uintptr_t last)
{
    return block->key == (last ^ (uintptr_t)block->next);
}

static inline void slab_mark_by(struct block *block, struct block *next, uintptr_t last)
{
    block->next = next;
    block->key = last ^ (uintptr_t)next;
}

/* Returns whether a carved block begins `offset` bytes behind the start of its slab. Returns false
 * for every block while OS pages of the slab are away: slab_has_block() then gives the answer. One
 * multiplication tests both that the offset is a multiple of the block's size, and that the block
 * is carved (after Lemire, Kaser and Kurz, "Faster remainder by direct computation", Software:
 * Practice and Experience 2019). `inverse` is 2^32 / size, rounded down, plus 1, so that size *
 * inverse is a little more than 2^32: by a step of 1 to size. Block number n begins at n * size,
 * and n * size * inverse (mod 2^32) is n * step. `bound` is this number for the first block that is
 * not carved. All other offsets give at least `inverse`, which is above every bound. The test is
 * exact for all offsets in a slab. A relaxed read of `bound` suffices, because it was above the
 * number of a block before the block was handed out. */
static inline bool slab_begins(const struct slab *slab, uint32_t offset)
{
    return offset * slab->inverse < PEEK(slab->bound);
}

/* Returns the number of bytes from the slab's start to the end of the carved blocks. */
static inline size_t slab_end(const struct slab *slab)
{
    return (size_t)atomic_load_explicit(&slab->carved, memory_order_relaxed) *
           size_class_bytes(slab->class);
}

/* Returns the slab of a small block. */
static inline struct slab *slab_of(const struct block *block)
{
    struct slab *slab = slab_at(region_index(block));
    return slab->kind == RUN_TAIL ? slab - slab->back : slab;
}

/* (owner only) Frees a live block. `last` is slab_key(block, NULL). Returns true if `until` is now
 * 0: the caller then calls heap_event(). */
static inline bool slab_free(struct slab *slab, struct block *block, uintptr_t last)
{
    slab_mark_by(block, slab->free, last);
    slab_interrupt_here(); /* a handler finds each block of `free` marked */
    slab->free = block;
    uint32_t until = atomic_load_explicit(&slab->until, memory_order_relaxed) - 1;
    /* Written after `free`, so that slab_live() is never too low. */
    atomic_store_explicit(&slab->until, until, memory_order_release);
    return until == 0;
}

/* (owner only) Like slab_free(), for `count` blocks at once. `count` must not exceed the slab's
 * `until`. The blocks are linked from `first` to `last` and marked as free. */
static inline bool slab_free_many(struct slab *slab, struct block *first, struct block *last,
                                  uint32_t count)
{
    slab_mark(last, slab->free);
    slab->free = first;
    uint32_t until = atomic_load_explicit(&slab->until, memory_order_relaxed) - count;
    /* Written after `free`, as in slab_free(). */
    atomic_store_explicit(&slab->until, until, memory_order_release);
    return until == 0;
}

/* Returns whether `p` is the start of a carved block of the slab. The block may be hidden. */
bool slab_has_block(const struct slab *slab, const void *p);

/* Asserts the contract, as far as the slab alone shows it. Called by the owner's thread, or when
 * that thread cannot run. */
void slab_check(struct slab *slab);

#endif
