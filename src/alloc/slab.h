/* slab.h - equal blocks in a run of slices: hands them out, takes them back.
 *
 * The record of a run's first slice is its slab; the records of the slices behind it hold only the distance back. One
 * heap owns a slab, and its thread alone uses what is marked (own) here; any thread may post blocks to it, by remote.h.
 *
 * A block is in exactly one place: out, on the list of the owner's heap, on `free`, among the posted ones, or not yet
 * carved. Between calls, always:
 *
 *     until + rest                 blocks that are out, on the heap's list, or posted: slab_live()
 *     carved - slab_live()         blocks on `free`
 *     end                          carved blocks' bytes
 *     carved <= capacity           those behind have never been touched, if the run was zero
 *     rest is 0 unless the state is FULL or a poster has just made it PARKED
 *
 * Local free touches `free` first and counts down `until` last: whoever reads slab_live() under the lock of a slab that
 * nobody allocates from sees too many rather than too few. Without the lock the two fields may be read from different
 * moments, and their sum is a hint.
 *
 * Local free counts down one field whatever the state: of a slab that nobody allocates from, the event at 0 comes after
 * an eighth of it, or one block, and puts it back to use; of others when all blocks are back.
 *
 * A free block holds the next one, and a key that says that it is free.
 */
#ifndef CAIRN_ALLOC_SLAB_H
#define CAIRN_ALLOC_SLAB_H

#include "alloc/region.h"
#include "alloc/size_class.h"

struct heap;

struct block {
    struct block *next;
    uintptr_t key; /* slab_key() while the block is free; anything else while it is out */
};

enum run_kind {
    RUN_NONE = 0, /* no run begins here */
    RUN_TAIL,     /* one of the slices behind the first */
    RUN_SLAB,
    RUN_LARGE,  /* large.h: one block */
    RUN_CACHED, /* run_cache.h: a thread keeps it, and it is no block */
    RUN_OWN,    /* the allocator's own: heaps, the table of sites */
};

struct slab {
    _Alignas(RECORD_BYTES) _Atomic(struct heap *)
        owner; /* NULL or site_keeps(): a large block of no heap's, or no run. A slab's is written under its owner's lock */
    union {
        struct block *free; /* (own) blocks that came back, newest first */
        uint64_t born_ns;   /* RUN_LARGE that a site counts: since when it is out */
    };
    _Atomic uint32_t until;  /* (own) local frees until the next event */
    _Atomic uint32_t rest;   /* (own) */
    _Atomic uint64_t posted; /* remote.h */
    uint32_t next; /* on the list that its state says, by slice index; under that list's lock */
    uint32_t prev;
    _Atomic uint32_t slices; /* of the run */
    union {
        uint32_t back; /* RUN_TAIL: so many slices before this one the run begins */
        uint32_t
            slack; /* RUN_LARGE of more than run_cache.h's lists have: slices that nobody asked for */
    };
    uint16_t capacity;       /* blocks that fit */
    _Atomic uint16_t carved; /* (own) blocks that were ever handed out or linked */
    union {
        uint32_t inverse; /* of the class: slab_begins() */
        uint32_t
            site; /* RUN_LARGE that a site counts: which, and for how many; of others 0, or what a slab left (site.h) */
    };
    _Atomic uint32_t end; /* (own) bytes from the start to behind the last carved block */
    uint8_t class;
    _Atomic uint8_t kind; /* enum run_kind; of a run that is handed out it does not change */
    uint8_t zero;         /* what is not carved reads as zero */
    uint8_t moved; /* RUN_LARGE: its pages came from elsewhere, and are a mapping of their own */
};
_Static_assert(sizeof(struct slab) == RECORD_BYTES, "the records are packed: one cache line each");

/* Slices of a slab of this class: the fewest that hold four blocks and leave at most a sixteenth behind them. */
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

/* Makes a run of slab_slices(class) slices an empty slab of `owner`, with nothing carved. */
struct slab *slab_create(size_t index, unsigned class, struct heap *owner, bool zero);

/* Of a slab that counts no live block: looks whether every block says that it is free. Counts can be wrong once a free
 * block was written to, and a run that is given back must have no block that somebody uses. */
void slab_is_free(const struct slab *slab);

/* The run is nobody's slab any more; the caller gives it back. All blocks are back. */
void slab_destroy(struct slab *slab);

static inline uint32_t slab_live(struct slab *slab)
{
    return atomic_load_explicit(&slab->until, memory_order_acquire) +
           atomic_load_explicit(&slab->rest, memory_order_relaxed);
}

/* (own) Takes all of `free` of a CURRENT slab, so that all that is carved counts as live. Nothing is looked at: whoever
 * hands out a block looks at its key first. */
static inline struct block *slab_steal(struct slab *slab, uint32_t *count)
{
    struct block *first = slab->free;
    *count = slab->carved - atomic_load_explicit(&slab->until, memory_order_relaxed);
    slab->free = NULL;
    atomic_store_explicit(&slab->until, slab->carved, memory_order_relaxed);
    return first;
}

/* (own) Links up to `most` blocks that were never carved, in address order; they count as live. NULL: all are carved.
 * Carves at least one block and then no further than the OS page that it ends in, so that pages are touched as late as
 * can be. */
struct block *slab_carve(struct slab *slab, uint32_t *count);

/* (own) Takes back `count` blocks that count as live, linked from `first` to `last`. */
void slab_unsteal(struct slab *slab, struct block *first, struct block *last, uint32_t count);

/* Of the keys of free blocks; different in every process. */
extern uintptr_t slab_secret __attribute__((visibility("hidden")));

/* A free block's key stands for its own address and for that of the next: who writes over the link, over the key, or over
 * both without knowing the secret, is noticed before the link is followed. */
static inline uintptr_t slab_key(const struct block *block, const struct block *next)
{
    return slab_secret ^ (uintptr_t)block ^ (uintptr_t)next;
}

/* Whether a block says that it is free. */
static inline bool slab_is_marked(const struct block *block)
{
    return block->key == slab_key(block, block->next);
}

/* Makes it say so, and `next` the one behind it. */
static inline void slab_mark(struct block *block, struct block *next)
{
    block->next = next;
    block->key = slab_key(block, next);
}

/* Both by what slab_key(block, NULL) was: the secret is read once, though block->next may be anywhere. */
static inline bool slab_is_marked_by(const struct block *block, uintptr_t last)
{
    return block->key == (last ^ (uintptr_t)block->next);
}

static inline void slab_mark_by(struct block *block, struct block *next, uintptr_t last)
{
    block->next = next;
    block->key = last ^ (uintptr_t)next;
}

/* Whether a carved block begins `offset` bytes behind the slab's start: whether the class divides it. One multiplication: the
 * inverse is 2^32 / bytes, rounded up, and a multiple of `bytes` comes out below it (Lemire, Kaser and Kurz, "Faster
 * remainder by direct computation", Software: Practice and Experience 2019). Exact for all offsets in a slab. */
static inline bool slab_begins(const struct slab *slab, uint32_t offset)
{
    return offset * slab->inverse < slab->inverse &&
           offset < atomic_load_explicit(
                        &slab->end, memory_order_relaxed); /* of what was handed out it tells */
}

/* The slab that a block lies in, which is one. */
static inline struct slab *slab_of(const struct block *block)
{
    struct slab *slab = slab_at(region_index(block));
    return slab->kind == RUN_TAIL ? slab - slab->back : slab;
}

/* (own) Takes back a block that counts as live, whose slab_key(block, NULL) is `last`; true when `until` has come down to
 * 0. */
static inline bool slab_free(struct slab *slab, struct block *block, uintptr_t last)
{
    slab_mark_by(block, slab->free, last);
    slab->free = block;
    uint32_t until = atomic_load_explicit(&slab->until, memory_order_relaxed) - 1;
    atomic_store_explicit(
        &slab->until, until,
        memory_order_release); /* after `free`: slab_live() sees rather too many */
    return until == 0;
}

/* (own) The same for `count` blocks at once, at most `until`, linked from `first` to `last` and marked so. */
static inline bool slab_free_many(struct slab *slab, struct block *first, struct block *last,
                                  uint32_t count)
{
    slab_mark(last, slab->free);
    slab->free = first;
    uint32_t until = atomic_load_explicit(&slab->until, memory_order_relaxed) - count;
    atomic_store_explicit(&slab->until, until, memory_order_release); /* as there */
    return until == 0;
}

/* Whether `p` is the start of a carved block of the slab. */
static inline bool slab_has_block(const struct slab *slab, const void *p)
{
    size_t offset = (size_t)((const char *)p - slab_start(slab));
    return offset <= UINT32_MAX && slab_begins(slab, (uint32_t)offset);
}

/* Asserts the contract as far as the owner can; called by the owner's thread, or when it cannot run. */
void slab_check(struct slab *slab);

#endif
