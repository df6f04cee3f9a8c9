/* stubs.h - stand-ins for the sources around the code under test. They provide memory for a few
 * slabs, a heap for each thread, and a record of the allocated blocks.
 *
 * They replace region.c, page_heap.c, large.c, run_cache.c and thread.c. The page heap never hands
 * out a run twice. A run that was given back is forbidden forever, so that any later access to it
 * is found. Each thread allocates from a part of its own, so that allocations of two threads do not
 * depend on each other. Always checked:
 *
 *     a block is handed out only while it is not allocated
 *     a run is given back once, as a whole, and without an allocated block
 */
#ifndef CAIRN_MODEL_STUBS_H
#define CAIRN_MODEL_STUBS_H

#include "model_checker.h"
#include "subject.h"

enum {
    STUBS_RUNS = 48,
    STUBS_BLOCKS = 160,
};

/* All state outside the allocator. A copy of it is restored before every execution. */
struct stubs {
    struct run {
        uint32_t first;
        uint32_t slices;
        bool returned;
    } runs[STUBS_RUNS];
    unsigned run_count;
    /* For each thread, the slices that it has allocated. The last entry is for setup and check. */
    size_t slices_used[MODEL_CHECKER_THREADS_MAX + 1];
    struct {
        void *p;
        bool out;
    } blocks[STUBS_BLOCKS];
    unsigned block_count;
    struct heap *heaps[MODEL_CHECKER_THREADS_MAX]; /* the first heap of each thread */
    struct heap *now[MODEL_CHECKER_THREADS_MAX];   /* the thread_heap of each thread */
    /* By thread, like slices_used: the number of lock_enter() calls that no lock_leave() has
     * followed yet. */
    unsigned entered[MODEL_CHECKER_THREADS_MAX + 1];
    /* The process is the child of a fork without handlers, and has not been adopted. */
    bool new_child;
    /* The fork was made by a signal handler, which interrupted thread 0. */
    bool in_handler;
    size_t emergency_used; /* bytes from emergency_allocate() */
};
extern struct stubs stubs;

/* Maps the memory. Must be called once. */
void stubs_make(void);

/* Gives each of `threads` threads a heap. The setup of a plan must call it first. */
void stubs_begin(unsigned threads);

/* The functions `enter` and `leave` of struct model_checker_plan. */
void stubs_enter(unsigned thread);
void stubs_leave(unsigned thread);

/* The functions below act for the current thread. In setup and check, they act for the thread that
 * stubs_as() selected last. */
void stubs_as(unsigned thread);
void stubs_as_nobody(void); /* a thread that owns no slab */
void *stubs_malloc(size_t size);
void stubs_free(void *p);
void stubs_end_thread(void);
void stubs_begin_thread(void); /* with a new heap, or that of an ended thread */
bool stubs_has_thread(unsigned thread);

/* Returns whether the block is allocated. */
bool stubs_is_out(const void *p);

/* Returns the slab of a block. */
struct slab *stubs_slab(const void *p);

#endif
