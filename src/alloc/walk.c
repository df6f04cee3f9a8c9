#include "alloc/walk.h"

#include "alloc/block_map.h"
#include "alloc/heap.h"
#include "alloc/large.h"
#include "alloc/large_guard.h"
#include "alloc/thread.h"

enum {
    BLOCKS_MAX = SLICE_BYTES / 16, /* a slab of 16-byte blocks has the most blocks */
    WORDS = BLOCKS_MAX / 64,
};

/* The run that begins at a slice, as it was while all locks were held. */
struct seen {
    size_t slices; /* length of the run, over which the walk steps */
    char *start;
    size_t block_bytes; /* from the start of a block to the next one */
    bool has_canaries;  /* the blocks are those of a slab in the hardened build */
    size_t blocks;
    const struct heap *owner;
    uint64_t live[WORDS]; /* a bit per block, set if it is live */
};

/* In the hardened build, asks the map of blocks (block_map.h). In the plain build, returns true if
 * the block's key does not mark it as free. Another thread may change the link or the key between
 * the two reads. They then do not match, and the block counts as live: it is live now, or was live
 * a moment ago, or will be live in a moment. */
__attribute__((no_sanitize("thread"))) static bool is_live(const struct block *block)
{
    const volatile struct block *now = block;
    if (CAIRN_HARDENED)
        return block_map_state(block) == BLOCK_LIVE;
    return now->key != slab_key(block, now->next);
}

static void look_at_slab(struct slab *slab, struct seen *seen)
{
    seen->slices = slab->slices;
    seen->start = slab_start(slab);
    seen->block_bytes = size_class_bytes(slab->class);
    seen->has_canaries = CAIRN_HARDENED;
    seen->blocks = slab->carved < BLOCKS_MAX ? slab->carved : BLOCKS_MAX;
    for (size_t i = 0; i < seen->blocks; i++)
        if (!slab_is_hidden(slab, i * seen->block_bytes) &&
            is_live((const struct block *)(seen->start + i * seen->block_bytes)))
            seen->live[i / 64] |= UINT64_C(1) << i % 64;
}

/* Corrects `*seen` for a large block between guards. Another thread may be making or freeing the
 * block. */
static void look_at_large(const struct slab *slab, struct seen *seen)
{
    seen->start = large_guard_block(slab);
    seen->block_bytes = large_guard_size(slab);
    seen->blocks = (size_t)(seen->start - slab_start(slab)) < SLICE_BYTES &&
                   block_map_state(seen->start) == BLOCK_LIVE;
}

/* Fills `*seen`. Returns false if neither a slab nor a large block begins at this slice. */
static bool look_at_run(size_t index, size_t end, struct seen *seen)
{
    *seen = (struct seen){.slices = 1};
    struct slab *slab = slab_at(index);
    seen->owner = atomic_load_explicit(&slab->owner, memory_order_acquire);
    if (slab->kind == RUN_LARGE) {
        size_t slices = slab->slices;
        if (slices == 0 || slices > end - index) /* the block is being made or freed */
            return false;
        seen->slices = slices;
        seen->start = slab_start(slab);
        seen->block_bytes = slices << SLICE_SHIFT;
        seen->blocks = 1;
        seen->live[0] = 1;
        if (CAIRN_HARDENED)
            look_at_large(slab, seen);
        return true;
    }
    if (remote_is_slab(slab)) {
        look_at_slab(slab, seen);
        return true;
    }
    return false;
}

/* Returns the usable bytes of a block. In the hardened build, they are the requested ones. */
static size_t usable_bytes(const struct seen *seen, const char *block)
{
    size_t most = seen->block_bytes - CANARY_BYTES;
    uint64_t slack = seen->has_canaries ? canary_slack(block + seen->block_bytes) : 0;
    return !seen->has_canaries ? seen->block_bytes : slack <= most ? most - (size_t)slack : 0;
}

/* Calls the visitor for each live block of the run. Returns false if the visitor returned false. */
static bool visit_live(const struct seen *seen, cairn_visitor visit, void *context)
{
    for (size_t i = 0; i < seen->blocks; i++) {
        char *block = seen->start + i * seen->block_bytes;
        if ((seen->live[i / 64] >> i % 64 & 1) != 0 &&
            !visit(block, usable_bytes(seen, block), context))
            return false;
    }
    return true;
}

bool walk_blocks(const struct heap *only, cairn_visitor visit, void *context)
{
    size_t end = atomic_load_explicit(&region.slices, memory_order_acquire);
    struct seen seen;
    if (!thread_may_lock())
        return false;
    for (size_t index = 1; index < end; index += seen.slices) {
        heap_lock_all();
        bool found = look_at_run(index, end, &seen);
        heap_unlock_all();
        if (found && (only == NULL || seen.owner == only) && !visit_live(&seen, visit, context))
            return false;
    }
    return true;
}
