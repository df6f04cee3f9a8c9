/* world.h - what a model's threads live in: memory for a few slabs, a heap each, and a book of who has which block.
 *
 * It stands for region.c, page_heap.c, large.c, run_cache.c and thread.c. The page heap never hands out a run a second time: one
 * that came back is forbidden for ever, so that whoever still comes there is seen, and each thread takes from a part of
 * its own, so that two who take do not depend on each other. Always checked:
 *
 *     a block is handed out only while nobody has it
 *     a run comes back once, whole, with no block out
 */
#ifndef CAIRN_MODEL_WORLD_H
#define CAIRN_MODEL_WORLD_H

#include "model.h"
#include "subject.h"

enum {
    WORLD_RUNS = 48,
    WORLD_BLOCKS = 160,
};

/* Everything that is not the allocator's own; a copy of it is put back before every execution. */
struct world {
    struct run {
        uint32_t first;
        uint32_t slices;
        bool returned;
    } runs[WORLD_RUNS];
    unsigned run_count;
    size_t slices_used[MODEL_THREADS_MAX + 1]; /* by thread; the last: by nobody */
    struct {
        void *p;
        bool out;
    } blocks[WORLD_BLOCKS];
    unsigned block_count;
    struct heap *heaps[MODEL_THREADS_MAX]; /* first of each thread */
    struct heap *now[MODEL_THREADS_MAX];   /* thread_heap */
};
extern struct world world;

/* Maps it; once. */
void world_make(void);

/* A heap for each of so many threads; call it first in a setup. */
void world_begin(unsigned threads);

/* For struct model_plan. */
void world_enter(unsigned thread);
void world_leave(unsigned thread);

/* By the thread that runs; in setup and check by the one that was named last. */
void world_as(unsigned thread);
void world_as_nobody(void); /* a thread that owns no slab */
void *world_malloc(size_t size);
void world_free(void *p);
void world_end_thread(void);
void world_begin_thread(void); /* with a heap of its own, or that of one that ended */
bool world_has_thread(unsigned thread);

/* Whether somebody has it. */
bool world_is_out(const void *p);

/* The slab of a block. */
struct slab *world_slab(const void *p);

#endif
