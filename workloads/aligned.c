/* Aligned blocks among plain ones. Half of the blocks come from malloc. A quarter comes from
 * aligned_alloc, with a size that is a multiple of the alignment, as C11 requires. A quarter comes
 * from posix_memalign with any size. Alignments are 16 bytes to 64 KiB, and small alignments are
 * more frequent. One alignment in 4096 is 128 KiB to 2 MiB. Real programs need such blocks for
 * vectors of SIMD code, for objects that must not share a cache line, for buffers of direct I/O,
 * and for arenas of other allocators. Each operation replaces a random block of the --blocks blocks
 * that are alive.
 *
 * The workload tests the search for an aligned place, the bytes that are lost before and after this
 * place, and free() of a block that does not start where its memory starts. It says nothing about
 * threads that free each other's blocks.
 */
#include "common/peak.h"
#include "common/workload.h"

#include <stdlib.h>
#include <string.h>

static struct parameter own[] = {
    {.name = "blocks",
     .help = "blocks that are alive at once in each thread",
     .value = 4000,
     .least = 1,
     .most = 16 * MIB},
    {.name = "least",
     .help = "bytes of the smallest block",
     .value = 16,
     .least = 1,
     .most = 16 * MIB},
    {.name = "most",
     .help = "bytes of the largest block; aligned_alloc rounds up",
     .value = 16 * KIB,
     .least = 1,
     .most = 16 * MIB},
    {.name = "alignment",
     .help = "largest alignment, a power of two",
     .value = 2 * MIB,
     .least = 16,
     .most = 2 * MIB},
    {0},
};

static size_t least;
static size_t most;
static size_t alignment_most;

static void prepare(void)
{
    least = parameter("least");
    most = parameter("most");
    alignment_most = parameter("alignment");
    if (most < least)
        workload_refuse("--most %zu is less than --least %zu", most, least);
    if ((alignment_most & (alignment_most - 1)) != 0)
        workload_refuse("--alignment %zu is not a power of two", alignment_most);
}

static size_t draw_alignment(struct random *random)
{
    uint64_t one = random_below(random, 13);
    uint64_t other = random_below(random, 13);
    size_t alignment = UINT64_C(16) << (one < other ? one : other);
    if (random_below(random, 4096) == 0)
        alignment = (128 * KIB) << random_below(random, 5);
    return alignment < alignment_most ? alignment : alignment_most;
}

/* Does the same as block_new_aligned() by posix_memalign. */
static struct block block_new_posix(struct worker *worker, size_t alignment, size_t size)
{
    void *start = NULL;
    int problem = posix_memalign(&start, alignment, size);
    if (problem != 0)
        workload_fail("posix_memalign of %zu bytes failed: %s", size, strerror(problem));
    if ((uintptr_t)start % alignment != 0)
        workload_fail("posix_memalign of %zu bytes returned %p, which is not aligned to %zu", size,
                      start, alignment);
    struct block block = {start, (uint32_t)size, worker->serial++};
    worker_account(worker, (int64_t)size);
    contents_write(start, 0, touch_bytes(settings.touch, size), block_key(&block));
    return block;
}

static struct block one_block(struct worker *worker)
{
    size_t size = size_log_uniform(&worker->random, least, most);
    uint64_t of_4 = random_below(&worker->random, 4);
    if (of_4 < 2)
        return block_new(worker, size);
    size_t alignment = draw_alignment(&worker->random);
    if (of_4 == 2)
        return block_new_aligned(worker, alignment, (size + alignment - 1) & ~(alignment - 1));
    return block_new_posix(worker, alignment, size);
}

static void work(struct worker *worker)
{
    uint64_t places = parameter("blocks");
    struct block *blocks = table_new(places * sizeof *blocks);
    for (uint64_t n; (n = worker_next(worker)) > 0;)
        for (; n > 0; n--) {
            struct block *block = &blocks[random_below(&worker->random, places)];
            block_drop(worker, block);
            *block = one_block(worker);
        }
    for (uint64_t i = 0; i < places; i++)
        block_drop(worker, &blocks[i]);
    table_free(blocks, places * sizeof *blocks);
}

static void conclude(void)
{
    workload_figure("peak_resident_bytes", (double)peak_resident_bytes());
}

const struct workload workload = {
    .name = "aligned",
    .title = "aligned_alloc and posix_memalign of 16 bytes to 2 MiB among plain malloc",
    .operation = "one block freed and another allocated in its place",
    .own = own,
    .operations = 2000000,
    .batch = 32,
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
    .conclude = conclude,
};
