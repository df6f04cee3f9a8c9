/* cairn.h - Cairn's allocator by names of its own, what it knows about itself, and giving memory back.
 *
 * libcairn puts itself under malloc(), free() and all their kin, so that no program needs this header to use it. Here is
 * what these names cannot say. The functions of the first part are those of C, whoever owns malloc() in the process: of
 * blocks that come from here it is always certain where they came from.
 *
 *     struct cairn_stats stats;
 *     cairn_statistics(&stats);
 *     printf("%zu bytes in %zu blocks\n", stats.live_bytes, stats.live_count);
 *     cairn_purge(0);                              what is idle goes back to the machine
 *
 * Any thread may call anything at any time, but not a signal handler. Sizes are in bytes. A free, a resize and a check
 * that finds misuse is one line on stderr and abort().
 */
#ifndef CAIRN_CAIRN_H
#define CAIRN_CAIRN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* --- blocks: as malloc() and its kin of C and POSIX; NULL and errno where there is no memory ---------------------- */

void cairn_free(void *block);

void *cairn_malloc(size_t size) __attribute__((malloc, warn_unused_result, alloc_size(1)));
void *cairn_calloc(size_t count, size_t size) __attribute__((malloc, warn_unused_result, alloc_size(1, 2)));
void *cairn_realloc(void *block, size_t size) __attribute__((warn_unused_result, alloc_size(2)));

/* EINVAL where `alignment` is no power of two; the size need be no multiple of it. */
void *cairn_aligned_alloc(size_t alignment, size_t size)
    __attribute__((malloc, warn_unused_result, alloc_align(1), alloc_size(2)));

/* Bytes that may be used, at least as many as were asked for; the same as long as the block lives. 0 for NULL. */
size_t cairn_usable_size(const void *block);

/* --- statistics --------------------------------------------------------------------------------------------------- */

enum { CAIRN_CLASS_COUNT = 64 };

/* Small blocks are of one of these sizes, and lie in slabs of one size each. */
struct cairn_class_stats {
    size_t block_bytes;
    size_t slab_count;
    size_t block_count; /* in these slabs, used or not, as far as they have been cut */
    size_t live_count;
};

/* A block is live from malloc() to free(), and counts with its usable size. What another thread holds ready to hand out
 * next counts as live as well: at most what is left of one slab per class and thread. Where threads allocate meanwhile,
 * numbers of different lines are of slightly different moments. */
struct cairn_stats {
    size_t live_bytes;
    size_t live_count;
    size_t large_bytes; /* of these: in blocks too large for a slab, or aligned to more than one can */
    size_t large_count;

    size_t mapped_bytes;    /* address space from the machine, used or not */
    size_t used_bytes;      /* of that: in slabs, large blocks, and what belongs to threads */
    size_t used_most_bytes; /* the most that used_bytes ever was */
    size_t idle_bytes;      /* free, and still resident: what cairn_purge(0) gives back */
    size_t resident_bytes;  /* used and idle: no more of it than this can be resident */
    size_t purged_bytes;    /* given back, ever; the same byte may be so more than once */

    uint64_t map_calls; /* of the kernel, for more memory */
    uint64_t purge_calls;

    size_t slab_count;
    size_t thread_count;    /* that have allocated and live */
    uint64_t refills;       /* times that a thread had to look for more blocks of a class */
    uint64_t slabs_made;    /* from fresh memory */
    uint64_t slabs_adopted; /* from threads that have ended */
    uint64_t wakes;         /* full slabs that other threads' frees put back to use */
    uint64_t claims;        /* slabs that other threads' frees gave back whole */

    struct cairn_class_stats classes[CAIRN_CLASS_COUNT];
};

/* Walks all slabs, and keeps threads from finding new ones meanwhile: a millisecond for each GiB or so. Costs nothing
 * where it is not called. */
void cairn_statistics(struct cairn_stats *stats);

enum { CAIRN_JSON_BYTES = 16384 }; /* enough for the document */

/* The same as a JSON object, its members named as above; classes without a slab are left out. Returns its length without
 * the final NUL, or 0 where it did not fit into `capacity` bytes. */
size_t cairn_statistics_json(char *text, size_t capacity);

/* --- memory and the machine --------------------------------------------------------------------------------------- */

/* Gives free resident memory back until at most `keep_bytes` of it are left. Returns how many bytes went back. */
size_t cairn_purge(size_t keep_bytes);

/* Holds what can be looked at from this thread against what must be true of it: its own blocks, and all slices. */
void cairn_check(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
