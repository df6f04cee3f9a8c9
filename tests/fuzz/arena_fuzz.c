/* arena_fuzz.c - reads its input as calls to an arena. A model (the shadow) knows every block and
 * its contents, every valid mark, and the mapped memory. Refused system calls are part of the
 * input. */
#define _GNU_SOURCE 1

#include "../unit/arena_os.h"
#include "fuzz.h"

#include <cairn/arena.h>

#include <string.h>

enum { BLOCKS = 400, MARKS = 20, EDGE_BYTES = 8 << 10, MEMORY_BYTES = 64 << 10, ERRNO = 4711 };

struct block {
    unsigned char *start;
    size_t size;
    unsigned char fill;
};

struct mark {
    struct cairn_arena_point point;
    unsigned block_count; /* number of blocks older than the mark */
    size_t allocated_bytes;
};

struct shadow {
    struct cairn_arena *arena;
    struct cairn_arena_options options;
    /* Oldest first. Blocks behind the newest mark may be in any order, because moved blocks are
     * appended. */
    struct block blocks[BLOCKS];
    unsigned block_count;
    struct mark marks[MARKS];
    unsigned mark_count;
    size_t high_water_bytes;
    unsigned char fill;
};

static unsigned char memory[MEMORY_BYTES];

/* Only the first and the last EDGE_BYTES of a large block are written and compared. */
static void fill(const struct block *block)
{
    size_t edge = block->size < EDGE_BYTES ? block->size : EDGE_BYTES;
    memset(block->start, block->fill, edge);
    memset(block->start + block->size - edge, block->fill, edge);
}

static bool holds(const unsigned char *start, size_t size, unsigned char value)
{
    for (size_t i = 0; i < size; i++)
        if (start[i] != value)
            return false;
    return true;
}

static bool is_whole(const struct block *block)
{
    size_t edge = block->size < EDGE_BYTES ? block->size : EDGE_BYTES;
    return holds(block->start, edge, block->fill) &&
           holds(block->start + block->size - edge, edge, block->fill);
}

static void check_numbers(struct shadow *shadow)
{
    struct cairn_arena_stats stats = cairn_arena_statistics(shadow->arena);
    size_t sum = 0;
    for (unsigned i = 0; i < shadow->block_count; i++)
        sum += shadow->blocks[i].size;
    EXPECT(stats.allocated_bytes >= sum);
    if (stats.allocated_bytes > shadow->high_water_bytes)
        shadow->high_water_bytes = stats.allocated_bytes;
    EXPECT(stats.high_water_bytes == shadow->high_water_bytes);
    EXPECT(stats.mapped_bytes == fake_os.mapped_bytes);
    EXPECT(shadow->options.limit_bytes == 0 || stats.mapped_bytes <= shadow->options.limit_bytes);
    EXPECT(!shadow->options.fixed || stats.mapped_bytes == 0);
    EXPECT(stats.reserved_bytes >= stats.mapped_bytes &&
           stats.reserved_bytes >= stats.allocated_bytes);
    EXPECT(stats.touched_bytes <= stats.reserved_bytes + os_page_bytes());
    EXPECT(stats.chunk_count > 0);
}

/* Checks that a request that returned NULL had a reason to fail: a system call was refused, the
 * request was too large, the arena has a limit, or the arena is fixed and full. */
static void check_null(struct shadow *shadow, size_t size, size_t alignment,
                       unsigned refused_before)
{
    if (fake_os.refused_count > refused_before || size > (size_t)1 << 40 ||
        shadow->options.limit_bytes > 0)
        return;
    EXPECT(shadow->options.fixed);
    struct cairn_arena_stats stats = cairn_arena_statistics(shadow->arena);
    size_t most = size + alignment + CAIRN_ARENA_OWN_BYTES + 64;
    EXPECT(stats.allocated_bytes + most > stats.reserved_bytes);
}

static bool overlap(const struct block *a, const struct block *b)
{
    return a->size > 0 && b->size > 0 && a->start < b->start + b->size &&
           b->start < a->start + a->size;
}

static void add(struct shadow *shadow, void *start, size_t size, size_t alignment)
{
    struct block block = {start, size, ++shadow->fill};
    EXPECT((uintptr_t)start % alignment == 0 && (uintptr_t)start % CAIRN_ARENA_ALIGNMENT == 0);
    for (unsigned i = 0; i < shadow->block_count; i++)
        EXPECT(!overlap(&block, &shadow->blocks[i]));
    if (shadow->options.fixed)
        EXPECT(block.start >= memory && block.start + size <= memory + MEMORY_BYTES);
    fill(&block);
    shadow->blocks[shadow->block_count++] = block;
}

static void allocate(struct shadow *shadow, struct input *input)
{
    size_t size = input_size(input, input_byte(input) < 4 ? 26 : 12);
    size_t alignment = 1;
    unsigned refused = fake_os.refused_count;
    char *block = NULL;
    switch (input_byte(input) % 8) {
    case 0:
        alignment = (size_t)1 << input_byte(input) % 23;
        block = cairn_arena_alloc_aligned(shadow->arena, size, alignment);
        break;
    case 1:
        block = cairn_arena_alloc_zeroed(shadow->arena, size, 1);
        size_t edge = size < EDGE_BYTES ? size : EDGE_BYTES;
        EXPECT(block == NULL || holds((unsigned char *)block, edge, 0));
        EXPECT(block == NULL || holds((unsigned char *)block + size - edge, edge, 0));
        break;
    case 2:
        size %= EDGE_BYTES;
        static unsigned char data[EDGE_BYTES];
        memset(data, 'd', size);
        block = cairn_arena_memdup(shadow->arena, data, size);
        EXPECT(block == NULL || holds((unsigned char *)block, size, 'd'));
        break;
    case 3:
        size = sizeof "cairn";
        block = cairn_arena_strdup(shadow->arena, "cairn");
        EXPECT(block == NULL || strcmp(block, "cairn") == 0);
        break;
    case 4:
        size = SIZE_MAX - size;
        EXPECT(cairn_arena_alloc(shadow->arena, size) == NULL);
        EXPECT(cairn_arena_alloc_array(shadow->arena, SIZE_MAX / 2, 3) == NULL);
        break;
    default:
        block = cairn_arena_alloc(shadow->arena, size);
        break;
    }
    if (block == NULL)
        check_null(shadow, size, alignment, refused);
    else if (shadow->block_count < BLOCKS)
        add(shadow, block, size, alignment);
}

static void resize(struct shadow *shadow, struct input *input)
{
    unsigned oldest =
        shadow->mark_count > 0 ? shadow->marks[shadow->mark_count - 1].block_count : 0;
    if (oldest == shadow->block_count)
        return;
    unsigned back =
        input_byte(input) < 128 ? 0 : input_byte(input) % (shadow->block_count - oldest);
    unsigned index = shadow->block_count - 1 - back;
    struct block block = shadow->blocks[index];
    size_t size = input_size(input, 14);
    unsigned refused = fake_os.refused_count;
    unsigned char *resized = cairn_arena_resize(shadow->arena, block.start, block.size, size);
    if (resized == NULL) {
        check_null(shadow, size, CAIRN_ARENA_ALIGNMENT, refused);
        EXPECT(is_whole(&block) && size > block.size);
        return;
    }
    size_t kept = block.size < size ? block.size : size;
    size_t edge = kept < EDGE_BYTES ? kept : EDGE_BYTES;
    EXPECT(holds(resized, edge, block.fill));
    EXPECT(size > block.size || resized == block.start);
    shadow->blocks[index] = shadow->blocks[--shadow->block_count];
    add(shadow, resized, size, 1);
}

static void mark(struct shadow *shadow)
{
    if (shadow->mark_count == MARKS)
        return;
    struct mark *mark = &shadow->marks[shadow->mark_count++];
    mark->point = cairn_arena_mark(shadow->arena);
    mark->block_count = shadow->block_count;
    mark->allocated_bytes = cairn_arena_statistics(shadow->arena).allocated_bytes;
}

static void rewind_to(struct shadow *shadow, struct input *input)
{
    if (shadow->mark_count == 0)
        return;
    shadow->mark_count -= input_byte(input) % shadow->mark_count;
    struct mark *mark = &shadow->marks[shadow->mark_count - 1];
    cairn_arena_rewind(shadow->arena, mark->point);
    shadow->block_count = mark->block_count;
    for (unsigned i = 0; i < shadow->block_count; i++)
        EXPECT(is_whole(&shadow->blocks[i]));
    EXPECT(cairn_arena_statistics(shadow->arena).allocated_bytes == mark->allocated_bytes);
}

static void step(struct shadow *shadow, struct input *input)
{
    unsigned choice = input_byte(input);
    if (choice < 150) {
        allocate(shadow, input);
    } else if (choice < 190) {
        resize(shadow, input);
    } else if (choice < 205) {
        mark(shadow);
    } else if (choice < 220) {
        rewind_to(shadow, input);
    } else if (choice < 222) {
        cairn_arena_reset(shadow->arena);
        shadow->block_count = shadow->mark_count = 0;
        EXPECT(cairn_arena_statistics(shadow->arena).allocated_bytes == 0);
    } else if (choice < 232) {
        cairn_arena_trim(shadow->arena, input_size(input, 22));
    } else if (choice < 240) {
        fake_os.refuse_call = fake_os.call_count + 1 + input_byte(input) % 4;
    } else {
        cairn_arena_check(shadow->arena);
        for (unsigned i = 0; i < shadow->block_count; i++)
            EXPECT(is_whole(&shadow->blocks[i]));
    }
    if (shadow->block_count == BLOCKS) {
        cairn_arena_reset(shadow->arena);
        shadow->block_count = shadow->mark_count = 0;
    }
    check_numbers(shadow);
    EXPECT(errno == ERRNO);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, data + size};
    static struct shadow shadow;
    memset(&shadow, 0, sizeof shadow);
    unsigned kind = input_byte(&input);
    shadow.options.checked = kind % 2 == 0 ? CAIRN_ARENA_CHECKED_OFF : CAIRN_ARENA_CHECKED_ON;
    shadow.options.huge = kind / 2 % 8 == 0   ? CAIRN_ARENA_HUGE_ON
                          : kind / 2 % 8 == 1 ? CAIRN_ARENA_HUGE_NEVER
                                              : CAIRN_ARENA_HUGE_AUTO;
    if (kind / 16 % 4 == 0)
        shadow.options.limit_bytes = input_size(&input, 24);
    if (kind / 16 % 4 == 1)
        shadow.options.size_hint = input_size(&input, 23);
    if (kind / 64 % 2 == 0) {
        unsigned offset = input_byte(&input);
        shadow.options.memory = memory + offset;
        shadow.options.memory_bytes = CAIRN_ARENA_OWN_BYTES + input_size(&input, 15);
        shadow.options.fixed = kind / 128 == 0;
    }
    /* If the input byte yields 0, refuse_call is the number of a past call, and no call is
     * refused. */
    fake_os.refuse_call = fake_os.call_count + input_byte(&input) % 8;
    errno = ERRNO;
    unsigned refused = fake_os.refused_count;
    shadow.arena = cairn_arena_create_with(&shadow.options);
    if (shadow.arena == NULL) {
        EXPECT(fake_os.refused_count > refused || shadow.options.limit_bytes > 0);
        EXPECT(fake_os.mapped_bytes == 0);
        return 0;
    }
    while (input.next < input.end)
        step(&shadow, &input);
    cairn_arena_check(shadow.arena);
    for (unsigned i = 0; i < shadow.block_count; i++)
        EXPECT(is_whole(&shadow.blocks[i]));
    fake_os.refuse_call = 0;
    cairn_arena_destroy(shadow.arena);
    EXPECT(fake_os.mapped_bytes == 0);
    /* The memory is the caller's again. If the arena has left it poisoned, AddressSanitizer reports
     * this write. */
    memset(memory, (int)kind, sizeof memory);
    return 0;
}
