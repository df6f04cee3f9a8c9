/* world.h - the environment of a model's threads: memory for a few slabs, a heap for each thread,
 * and a record of the allocated blocks.
 *
 * It replaces region.c, page_heap.c, large.c, run_cache.c and thread.c. The page heap never hands
 * out a run twice. A run that was given back is forbidden forever, so that any later access to it
 * is found. Each thread allocates from a part of its own, so that allocations of two threads do not
 * depend on each other. Always checked:
 *
 *     a block is handed out only while it is not allocated
 *     a run is given back once, as a whole, and without an allocated block
 */
#ifndef CAIRN_MODEL_WORLD_H
#define CAIRN_MODEL_WORLD_H

#include "model.h"
#include "subject.h"

enum {
    WORLD_RUNS = 48,
    WORLD_BLOCKS = 160,
};

/* All state outside the allocator. A copy of it is restored before every execution. */
struct world {
    struct run {
        uint32_t first;
        uint32_t slices;
        bool returned;
    } runs[WORLD_RUNS];
    unsigned run_count;
    /* By thread; the last entry is for setup and check. */
    size_t slices_used[MODEL_THREADS_MAX + 1];
    struct {
        void *p;
        bool out;
    } blocks[WORLD_BLOCKS];
    unsigned block_count;
    struct heap *heaps[MODEL_THREADS_MAX]; /* the first heap of each thread */
    struct heap *now[MODEL_THREADS_MAX];   /* the thread_heap of each thread */
};
extern struct world world;

/* Maps the memory. Must be called once. */
void world_make(void);

/* Gives each of `threads` threads a heap. The setup of a plan must call it first. */
void world_begin(unsigned threads);

/* The functions `enter` and `leave` of struct model_plan. */
void world_enter(unsigned thread);
void world_leave(unsigned thread);

/* The functions below act for the current thread. In setup and check, they act for the thread that
 * world_as() selected last. */
void world_as(unsigned thread);
void world_as_nobody(void); /* a thread that owns no slab */
void *world_malloc(size_t size);
void world_free(void *p);
void world_end_thread(void);
void world_begin_thread(void); /* its heap is new, or that of an ended thread */
bool world_has_thread(unsigned thread);

/* Returns whether the block is allocated. */
bool world_is_out(const void *p);

/* Returns the slab of a block. */
struct slab *world_slab(const void *p);

#endif
