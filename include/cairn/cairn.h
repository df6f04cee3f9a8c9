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
 *     struct cairn_heap *heap = cairn_heap_create();
 *     build_tree(heap);                            calls cairn_heap_malloc(heap, …) a million times
 *     cairn_heap_destroy(heap);                    all of it is free, at once
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
void *cairn_calloc(size_t count, size_t size)
    __attribute__((malloc, warn_unused_result, alloc_size(1, 2)));
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
    size_t
        cached_count; /* free, and handed out next by the caller, the thread that ended last, or a heap */
    size_t fresh_count; /* that can still be cut: never used, and mostly never touched */
    size_t slack_bytes; /* at the ends of the slabs, where no block fits */
};

/* A block is live from malloc() to free(), and counts with its usable size. What another thread holds ready to hand out
 * next counts as live as well: at most what is left of one slab per class and thread, or 16 and an OS page of blocks of several. Where threads allocate meanwhile,
 * numbers of different lines are of slightly different moments. */
struct cairn_stats {
    size_t live_bytes;
    size_t live_count;
    size_t
        large_bytes; /* of these: in blocks too large for a slab, or aligned to more than one can */
    size_t large_count;

    size_t mapped_bytes;    /* address space from the machine, used or not */
    size_t used_bytes;      /* of that: in slabs, large blocks, and what belongs to threads */
    size_t used_most_bytes; /* the most that used_bytes ever was */
    size_t idle_bytes;      /* free, and still resident: what cairn_purge(0) gives back */
    size_t
        resident_bytes; /* used and idle: no more is resident, but for CAIRN_PURGE=free and huge pages */
    size_t cached_bytes; /* of the used: runs that threads keep, and all cached_count */
    size_t free_bytes;   /* other free blocks: what fragmentation costs */
    size_t fresh_bytes;  /* all fresh_count */
    size_t slack_bytes;  /* all slack_bytes of the classes */
    size_t own_bytes; /* heaps; with live, cached, free, fresh and slack bytes all that is used */
    size_t record_bytes; /* beside the mapped ones: what is known of each 16 KiB */
    size_t limit_bytes;  /* cairn_limit(); 0: none */
    size_t purged_bytes; /* given back, ever; the same byte may be so more than once */

    uint64_t map_calls; /* of the kernel, for more memory */
    uint64_t purge_calls;
    size_t held_bytes; /* of idle memory so much is kept beyond as much as is used; learnt */
    uint64_t learnt;   /* times that this has changed, or for how long no huge page is asked for */

    size_t slab_count;
    size_t thread_count;    /* that have allocated and live */
    size_t heap_count;      /* of cairn_heap_create(), and one for threads that are ending */
    uint64_t refills;       /* times that a thread had to look for more blocks of a class */
    uint64_t slabs_made;    /* from runs that nobody used */
    uint64_t slabs_adopted; /* from threads that have ended */
    uint64_t remote_frees;  /* of blocks in slabs that are not of the thread that frees */
    uint64_t wakes;         /* full slabs that other threads' frees put back to use */
    uint64_t claims;        /* slabs that other threads' frees gave back whole */

    struct cairn_class_stats classes[CAIRN_CLASS_COUNT];
};

/* Walks all slabs, and keeps threads from finding new ones meanwhile: a millisecond for each GiB or so. Costs nothing
 * where it is not called. */
void cairn_statistics(struct cairn_stats *stats);

/* Enough for each document; with CAIRN_SITES=1 in the environment the second one for the JSON. */
enum { CAIRN_JSON_BYTES = 16384, CAIRN_SITES_BYTES = 425984, CAIRN_PROMETHEUS_BYTES = 32768 };

/* The same as a JSON object, its members named as above; classes without a slab are left out. Returns its length without
 * the final NUL, or 0 where it did not fit into `capacity` bytes.
 *
 * With CAIRN_SITES=1 it has more members, of who allocates large blocks: `sites`, those with the most bytes first, as many as
 * there is room for; `site_count`, how many there are; `other_sites`, those that came when 768 were known; and `objects`, the
 * files that their addresses lie in, which are the return addresses of the calls. */
size_t cairn_statistics_json(char *text, size_t capacity);

/* The same in Prometheus' text format, version 0.0.4: metrics cairn_live_bytes and so on, what only grows ending in _total,
 * and cairn_class_live_count{block_bytes="16"} and so on for each class with a slab. */
size_t cairn_statistics_prometheus(char *text, size_t capacity);

/* Called for a live block: where it begins, and how much of it may be used. False ends the walk. It may allocate and
 * free. */
typedef bool (*cairn_visitor)(void *block, size_t usable_bytes, void *context);

/* Calls `visit` for every live block of the process, in the order of addresses. What is allocated or freed meanwhile, by
 * the visitor or by other threads, may be seen or not. Returns false where the visitor did. */
bool cairn_walk(cairn_visitor visit, void *context);

/* --- heaps: blocks that can be freed all at once ------------------------------------------------------------------ */

/* Any thread may allocate in a heap, one at a time, and any thread may free, resize or measure its blocks by the functions
 * above or those of C. A heap holds at least a slab of each size that it was asked for, so that it is a place for many
 * blocks; arena.h is cheaper still where no block is freed by itself. Use of a heap that was given up is one line on
 * stderr and abort(), until its memory serves another. */
struct cairn_heap;

/* NULL and ENOMEM where there is no memory. */
struct cairn_heap *cairn_heap_create(void) __attribute__((warn_unused_result));

/* Gives the heap up and frees all blocks that are still in it; nobody may use them any more. NULL is no heap, and fine. */
void cairn_heap_destroy(struct cairn_heap *heap);

/* Gives the heap up, but not its blocks: each lives until it is freed. NULL is no heap, and fine. */
void cairn_heap_release(struct cairn_heap *heap);

void *cairn_heap_malloc(struct cairn_heap *heap, size_t size)
    __attribute__((malloc, warn_unused_result, alloc_size(2)));
void *cairn_heap_calloc(struct cairn_heap *heap, size_t count, size_t size)
    __attribute__((malloc, warn_unused_result, alloc_size(2, 3)));
void *cairn_heap_aligned_alloc(struct cairn_heap *heap, size_t alignment, size_t size)
    __attribute__((malloc, warn_unused_result, alloc_align(2), alloc_size(3)));

/* The block, wherever it came from, in this heap if it had to move. realloc() moves a block out of its heap: it is then
 * not freed with the others. */
void *cairn_heap_realloc(struct cairn_heap *heap, void *block, size_t size)
    __attribute__((warn_unused_result, alloc_size(3)));

/* As cairn_walk(), the blocks of one heap alone. */
bool cairn_heap_walk(struct cairn_heap *heap, cairn_visitor visit, void *context);

/* --- memory and the machine --------------------------------------------------------------------------------------- */

/* Puts what this thread holds ready back to where others find it, and looks in all heaps for memory that only waits for
 * its owner. Nothing goes back to the machine: that is cairn_purge(). */
void cairn_collect(void);

/* Gives free resident memory back until at most `keep_bytes` of it are left. Returns how many bytes went back. */
size_t cairn_purge(size_t keep_bytes);

/* From now on at most so many bytes are handed out, slabs and what threads hold ready included: what would be more is
 * refused, as if the machine had no more. Memory that is free is given back in time. 0: no limit. What is handed out
 * already stays. Returns the limit there was. CAIRN_LIMIT in the environment sets one from the start. */
size_t cairn_limit(size_t bytes);

/* Holds what can be looked at from this thread against what must be true of it: its own blocks, heaps that are no
 * thread's, what threads left, the lists of all others, and all slices. */
void cairn_check(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
