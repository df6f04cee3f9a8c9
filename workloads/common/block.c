#include "common/worker.h"

#include <inttypes.h>
#include <stdlib.h>

uint64_t block_key(const struct block *block)
{
    return random_mix(block->serial);
}

void worker_account(struct worker *worker, int64_t bytes)
{
    worker->live += bytes;
    if (worker->live > worker->live_most)
        worker->live_most = worker->live;
}

/* Returns the alignment that malloc must give to a block of `size` bytes. This is the alignment of
 * the largest object that fits into the block, but at most 16 (ISO C, DR 75). */
static size_t owed_alignment(size_t size)
{
    return size >= 16 ? 16 : size >= 8 ? 8 : size >= 4 ? 4 : 1;
}

static void *checked(void *start, const char *call, size_t size, size_t alignment)
{
    if (start == NULL)
        workload_fail("%s of %zu bytes failed: out of memory", call, size);
    if ((uintptr_t)start % alignment != 0)
        workload_fail("%s of %zu bytes returned %p, which is not aligned to %zu", call, size, start,
                      alignment);
    return start;
}

void *block_checked(void *start, const char *call, size_t size)
{
    return checked(start, call, size, owed_alignment(size));
}

static struct block born(struct worker *worker, void *start, size_t size)
{
    struct block block = {start, (uint32_t)size, worker->serial++};
    worker_account(worker, (int64_t)size);
    size_t touched = touch_bytes(settings.touch, size);
    if (touched > 0)
        contents_write(start, 0, touched, block_key(&block));
    return block;
}

struct block block_new(struct worker *worker, size_t size)
{
    return born(worker, block_checked(malloc(size), "malloc", size), size);
}

struct block block_new_zeroed(struct worker *worker, size_t size)
{
    void *start = block_checked(calloc(1, size), "calloc", size);
    if (!contents_are_zero(start, touch_bytes(settings.touch, size)))
        workload_fail("calloc of %zu bytes returned memory that is not zero", size);
    return born(worker, start, size);
}

struct block block_new_aligned(struct worker *worker, size_t alignment, size_t size)
{
    return born(worker, checked(aligned_alloc(alignment, size), "aligned_alloc", size, alignment),
                size);
}

void block_resize(struct worker *worker, struct block *block, size_t size)
{
    size_t before = touch_bytes(settings.touch, block->size);
    size_t now = touch_bytes(settings.touch, size);
    worker_account(worker, (int64_t)size - (int64_t)block->size);
    block->start = block_checked(realloc(block->start, size), "realloc", size);
    block->size = (uint32_t)size;
    /* The bytes that realloc kept are checked when the block is read or dropped. Checking them at
     * every realloc would take more time than realloc. */
    if (now > 0)
        contents_write(block->start, before < now ? before : now, now, block_key(block));
}

void block_read(struct worker *worker, const struct block *block)
{
    size_t touched = touch_bytes(settings.touch, block->size);
    uint64_t sum = touched > 0 ? contents_sum(block->start, touched) : 0;
    worker->checksum += random_mix(sum ^ random_mix(block->size ^ block_key(block)));
    if (sum != contents_expected(touched, block_key(block)))
        worker->damaged++;
}

void block_drop(struct worker *worker, struct block *block)
{
    if (block->start == NULL)
        return;
    block_read(worker, block);
    worker_account(worker, -(int64_t)block->size);
    free(block->start);
    block->start = NULL;
}

void *worker_malloc(struct worker *worker, size_t size)
{
    worker_account(worker, (int64_t)size);
    return block_checked(malloc(size), "malloc", size);
}

void *worker_realloc(struct worker *worker, void *start, size_t old_size, size_t size)
{
    worker_account(worker, (int64_t)size - (int64_t)old_size);
    return block_checked(realloc(start, size), "realloc", size);
}

void worker_free(struct worker *worker, void *start, size_t size)
{
    if (start == NULL)
        return;
    worker_account(worker, -(int64_t)size);
    free(start);
}

void worker_sum(struct worker *worker, uint64_t value)
{
    worker->checksum += random_mix(value);
}
