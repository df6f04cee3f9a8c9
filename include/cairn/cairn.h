/* cairn.h - the functions of Cairn's allocator beyond malloc() and free().
 *
 * libcairn replaces malloc(), free() and their kin, so that a program needs this header only for
 * other functions: statistics, heaps that are freed at once, and giving memory back. The functions
 * of the first part do the same as malloc() and its kin, but always use Cairn's allocator, even if
 * another allocator owns malloc() in the process.
 *
 *     struct cairn_stats stats;
 *     cairn_statistics(&stats);
 *     printf("%zu bytes in %zu blocks\n", stats.live_bytes, stats.live_count);
 *     cairn_purge(0);                              gives all idle memory back to the kernel
 *
 *     struct cairn_heap *heap = cairn_heap_create();
 *     build_tree(heap);                            calls cairn_heap_malloc(heap, …) a million times
 *     cairn_heap_destroy(heap);                    frees all of it at once
 *
 * Any thread may call any function at any time, but a signal handler may not. Sizes are in bytes. A
 * call that finds misuse or a corrupt heap writes one line to stderr and calls abort().
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

/* --- blocks: as malloc() and its kin; NULL and errno ENOMEM if there is no memory ------------ */

void cairn_free(void *block);

void *cairn_malloc(size_t size) __attribute__((malloc, warn_unused_result, alloc_size(1)));
void *cairn_calloc(size_t count, size_t size)
    __attribute__((malloc, warn_unused_result, alloc_size(1, 2)));
void *cairn_realloc(void *block, size_t size) __attribute__((warn_unused_result, alloc_size(2)));

/* Fails with EINVAL if `alignment` is not a power of two. `size` need not be a multiple of
 * `alignment`. */
void *cairn_aligned_alloc(size_t alignment, size_t size)
    __attribute__((malloc, warn_unused_result, alloc_align(1), alloc_size(2)));

/* Returns how many bytes of the block may be used: at least as many as were requested. The number
 * stays the same while the block lives. Returns 0 for NULL. */
size_t cairn_usable_size(const void *block);

/* --- statistics ------------------------------------------------------------------------------- */

enum { CAIRN_CLASS_COUNT = 64 };

/* Each small block has one of CAIRN_CLASS_COUNT sizes, the size classes. Each slab holds blocks of
 * one class. */
struct cairn_class_stats {
    size_t block_bytes;
    size_t slab_count;
    size_t block_count; /* blocks carved in the slabs so far, used or not */
    size_t live_count;
    /* Free blocks that are kept ready on a list: by the calling thread, by the thread that ended
     * last, or by a heap. */
    size_t cached_count;
    /* Blocks that can still be carved. These blocks were never used, and mostly their memory was
     * never touched. */
    size_t fresh_count;
    size_t slack_bytes; /* at the ends of the slabs, where no block fits */
};

/* A block is live from malloc() to free(), and counts with its usable size. Free blocks that
 * another thread keeps ready count as live, too. For each class, a thread keeps at most this many
 * blocks ready: the free blocks of one slab, or 16 blocks and one OS page of blocks. While threads
 * allocate, different members may describe slightly different moments. */
struct cairn_stats {
    size_t live_bytes;
    size_t live_count;
    /* Live bytes in large blocks: those too large for a slab, or aligned to more than a slab can
     * align. */
    size_t large_bytes;
    size_t large_count;

    size_t mapped_bytes;    /* address space taken from the kernel */
    size_t used_bytes;      /* mapped bytes in slabs, large blocks and heaps */
    size_t used_most_bytes; /* the highest value of used_bytes so far */
    size_t idle_bytes;      /* free but resident; cairn_purge(0) gives it back */
    /* used_bytes + idle_bytes: an upper bound of the resident set, except with CAIRN_PURGE=free and
     * huge pages. */
    size_t resident_bytes;
    /* live_bytes and the next five members add up to used_bytes. */
    size_t cached_bytes; /* runs that threads keep, and the cached blocks */
    size_t free_bytes;   /* other free blocks: the cost of fragmentation */
    size_t fresh_bytes;  /* blocks that can still be carved */
    size_t slack_bytes;  /* slack_bytes of all classes */
    /* The allocator's own: heaps, the tables of CAIRN_SITES and CAIRN_BIG_CACHE, guards of the
     * hardened build, and addresses that the kernel left unmapped when a block was to be moved or
     * lengthened. */
    size_t own_bytes;
    size_t record_bytes; /* address space for records; not in mapped_bytes */
    size_t limit_bytes;  /* set by cairn_limit(); 0: no limit */
    size_t purged_bytes; /* given back so far; a byte may count repeatedly */

    uint64_t map_calls;   /* system calls for more memory */
    uint64_t purge_calls; /* system calls that gave memory back */
    /* A free gives memory back at once if idle_bytes > used_bytes + held_bytes. This value is
     * learnt. */
    size_t held_bytes;
    /* How often a learnt value has changed. The learnt values are held_bytes, the number of chunks
     * that request no huge page after a slow huge page, and, with CAIRN_POLICY=ucb1, how much each
     * thread keeps. */
    uint64_t learnt;

    size_t slab_count;
    size_t thread_count;    /* living threads with a heap of their own */
    size_t heap_count;      /* from cairn_heap_create(), and one for other threads */
    uint64_t refills;       /* times that a thread fetched more blocks of a class */
    uint64_t slabs_made;    /* made from unused runs */
    uint64_t slabs_adopted; /* taken over from threads that have ended */
    uint64_t remote_frees;  /* small blocks freed by another thread than their owner */
    uint64_t wakes;         /* full slabs that remote frees made usable again */
    uint64_t claims;        /* whole slabs that remote frees gave back */

    struct cairn_class_stats classes[CAIRN_CLASS_COUNT];
};

/* Fills `*stats`. The call walks all slabs, which takes about a millisecond per GiB. Threads cannot
 * get new slabs meanwhile. Statistics cost nothing while they are not requested.
 *
 * A signal handler may interrupt the allocator and fork. The child of such a fork may take none of
 * the allocator's locks. In this child, all statistics are 0. Of the functions below, those that
 * allocate blocks take memory that is not in a heap. All others do nothing and return false, 0 or
 * NULL. */
void cairn_statistics(struct cairn_stats *stats);

/* Enough bytes for each text. With CAIRN_SITES=1 in the environment, the JSON needs
 * CAIRN_SITES_BYTES. */
enum { CAIRN_JSON_BYTES = 16384, CAIRN_SITES_BYTES = 425984, CAIRN_PROMETHEUS_BYTES = 32768 };

/* Writes the statistics as a JSON object with the member names above. Classes without a slab are
 * left out. Returns the length without the final NUL, or 0 if the text does not fit into `capacity`
 * bytes.
 *
 * With CAIRN_SITES=1, the object has more members, about the call sites that allocate large blocks.
 * `sites` lists as many sites as there is room for, those with the most bytes first. `site_count`
 * is the number of known sites, at most 768. `other_sites` sums up the blocks of all other callers:
 * of unknown callers, and of sites that appeared when 768 sites were already known. `objects` lists
 * the files that the sites' addresses lie in. An address is the return address of a call. */
size_t cairn_statistics_json(char *text, size_t capacity);

/* Writes the statistics in Prometheus' text format, version 0.0.4. The metrics are cairn_live_bytes
 * and so on; counters end in _total. Each class with a slab has
 * cairn_class_live_count{block_bytes="16"} and so on. Returns the length, or 0, as
 * cairn_statistics_json() does. */
size_t cairn_statistics_prometheus(char *text, size_t capacity);

/* Called for each live block, with its address and its usable bytes. Returns false to end the walk.
 * The visitor may allocate and free. */
typedef bool (*cairn_visitor)(void *block, size_t usable_bytes, void *context);

/* Calls `visit` for every live block of the process, in the order of addresses. Blocks that are
 * allocated or freed meanwhile, by the visitor or by other threads, may be visited or not. Returns
 * false if the visitor returned false, or if no lock may be taken (see cairn_statistics()). */
bool cairn_walk(cairn_visitor visit, void *context);

/* --- heaps: blocks that can be freed all at once ---------------------------------------------- */

/* A heap is a set of blocks that can be freed together. Any thread may allocate in it; the threads
 * take turns. Any thread may free or resize its blocks, or ask for their usable size, by the
 * functions above or those of C. A heap holds at least one slab per size that was requested, so it
 * is meant for many blocks. An arena (arena.h) is cheaper still if no block is freed alone. A call
 * with a heap that was destroyed or released writes one line to stderr and calls abort(). Once the
 * memory of that heap serves a new heap, such a call is no longer noticed. */
struct cairn_heap;

/* Returns NULL with errno ENOMEM if there is no memory. */
struct cairn_heap *cairn_heap_create(void) __attribute__((warn_unused_result));

/* Frees the heap and all blocks that are still in it. The program may use neither the heap nor its
 * blocks after that. NULL is allowed and does nothing. */
void cairn_heap_destroy(struct cairn_heap *heap);

/* Ends the heap, but not its blocks: each lives until it is freed. NULL is allowed and does
 * nothing. */
void cairn_heap_release(struct cairn_heap *heap);

void *cairn_heap_malloc(struct cairn_heap *heap, size_t size)
    __attribute__((malloc, warn_unused_result, alloc_size(2)));
void *cairn_heap_calloc(struct cairn_heap *heap, size_t count, size_t size)
    __attribute__((malloc, warn_unused_result, alloc_size(2, 3)));
void *cairn_heap_aligned_alloc(struct cairn_heap *heap, size_t alignment, size_t size)
    __attribute__((malloc, warn_unused_result, alloc_align(2), alloc_size(3)));

/* Resizes a block of any origin. If the block has to move, it moves into this heap. realloc(), in
 * contrast, moves a block out of its heap, so that it is no longer freed with the heap. */
void *cairn_heap_realloc(struct cairn_heap *heap, void *block, size_t size)
    __attribute__((warn_unused_result, alloc_size(3)));

/* Like cairn_walk(), but visits only the blocks of one heap. */
bool cairn_heap_walk(struct cairn_heap *heap, cairn_visitor visit, void *context);

/* --- memory and the kernel -------------------------------------------------------------------- */

/* Makes the free memory that this thread keeps ready available to all threads. Does the same with
 * each slab, of any heap, whose blocks are all free but partly still wait for the heap's owner,
 * because other threads freed them. Gives the free pages within the slabs of this thread, and of
 * threads that have ended, back to the kernel. Other free memory stays resident: cairn_purge()
 * gives it back. */
void cairn_collect(void);

/* Gives idle memory back to the kernel until at most `keep_bytes` of it are left. Returns how many
 * bytes it gave back. */
size_t cairn_purge(size_t keep_bytes);

/* Limits used_bytes to `bytes` from now on. used_bytes includes slabs and memory that threads keep
 * ready. An allocation beyond the limit fails as if the machine had no more memory. Idle memory is
 * given back when used and idle memory together exceed the limit. Blocks in use stay, even if they
 * exceed the limit. 0 means no limit. Returns the previous limit. CAIRN_LIMIT in the environment
 * sets a limit from the start. */
size_t cairn_limit(size_t bytes);

/* Asserts the allocator's invariants as far as this thread can see them: for its own blocks, for
 * heaps that belong to no thread, for the slabs that ended threads left, for the lists of all other
 * threads, and for all slices. */
void cairn_check(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
