/* chunk.h - the records of chunks, and which of them has room for a short run.
 *
 * A chunk has 128 slices, and a map has a bit for each. Those that are partly used are on a list for each length that their longest
 * free run can have and for each quarter of how much of them is in use: a short run goes where it leaves the least, and of such chunks
 * to one that is densely used, so that sparse ones empty.
 *
 * It is put there when the next one is looked for, not whenever it changes: a program that asks for long runs alone never needs it.
 * The bound that free_map.h is told meanwhile is of what is free but neither at the start nor at the end, as if it lay side by side.
 *
 * Always true, between calls:
 *
 *     `used_count` is how many bits of `used` are set
 *     a partly used chunk has changed since the last look, or is on the list where it belongs
 *     free_map.h says of a chunk what its map says; of one that is not ours, that nothing is free
 *
 * Everything is under the page heap's lock.
 */
#ifndef CAIRN_ALLOC_CHUNK_H
#define CAIRN_ALLOC_CHUNK_H

#include "alloc/free_map.h"
#include "base/bits.h"

/* Of a chunk that region_grow() skipped it was never written: its slices are neither used nor free. */
struct chunk {
    _Alignas(RECORD_BYTES) struct bits used;
    struct bits dirty;   /* touched, as far as we know, since it was mapped or given back */
    uint8_t huge;        /* the kernel was asked for a huge page */
    uint8_t small;       /* and then to give none there */
    uint8_t inside;      /* its first slice belongs to a run that begins in a chunk before */
    uint16_t used_count; /* bits of `used` */
    uint16_t list;       /* that it is on, chunk.c; 0: none */
    uint32_t next;       /* on it; CHUNK_NONE: none */
    uint32_t prev;
    uint8_t dense;   /* page_heap_look(): at so many looks in a row it was; COLLAPSED */
    uint8_t reused;  /* times that all of it was handed out at once, and was dirty */
    uint8_t told;    /* and times that this was told: each time it has to be twice as many */
    uint8_t offered; /* what is not dirty may be what it was, and resident */
};
_Static_assert(sizeof(struct chunk) == RECORD_BYTES, "one cache line");

#define CHUNK_NONE UINT32_MAX

static inline struct chunk *chunk_of(size_t number)
{
    return region_chunk_record(number);
}

/* Less of the chunk is free than before, as its map and count say by now. */
void chunk_took(size_t number);

/* The same where it is more. */
void chunk_gave(size_t number);

/* The same where all of it was free, or none. */
static inline void chunk_took_all(size_t number)
{
    free_map_take(number, (struct free_slices){0});
}

static inline void chunk_gave_all(size_t number)
{
    free_map_put(number, (struct free_slices){CHUNK_SLICES, CHUNK_SLICES, CHUNK_SLICES, 0});
}

/* Its longest free run, which free_map.h has a bound of; from now on exactly. */
unsigned chunk_exactly(size_t number);

/* The partly used chunk whose longest free run is the shortest of at least `slices`, of these one that is densely used; CHUNK_NONE:
 * there is none. */
size_t chunk_find(size_t slices);

/* Asserts the contract of one chunk. */
void chunk_check(size_t number);

#endif
