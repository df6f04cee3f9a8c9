#include "arena/chunk.h"
#include "os/os.h"

#include <assert.h>

static_assert(sizeof(struct chunk) % CHUNK_ALIGNMENT == 0, "room may follow the record at once");

struct shape {
    size_t alignment;
    size_t offset_bytes; /* from the record to the room */
    size_t mapped_bytes; /* 0: the size overflows */
};

static struct shape shape_of(size_t header_bytes, size_t room_bytes, size_t alignment, bool huge)
{
    size_t page = os_page_bytes();
    struct shape shape = {.alignment = alignment};
    if (huge && alignment < OS_HUGE_PAGE_BYTES)
        shape.alignment = OS_HUGE_PAGE_BYTES;
    shape.offset_bytes =
        chunk_round_up(header_bytes, shape.alignment < page ? shape.alignment : page);
    size_t needed;
    if (!__builtin_add_overflow(shape.offset_bytes, room_bytes, &needed) &&
        needed <= SIZE_MAX - page)
        shape.mapped_bytes = chunk_round_up(needed, page);
    return shape;
}

size_t chunk_mapped_bytes(size_t header_bytes, size_t room_bytes, size_t alignment, bool huge)
{
    return shape_of(header_bytes, room_bytes, alignment, huge).mapped_bytes;
}

struct chunk *chunk_map(size_t header_bytes, size_t room_bytes, size_t alignment, bool huge)
{
    struct shape shape = shape_of(header_bytes, room_bytes, alignment, huge);
    if (shape.mapped_bytes == 0)
        return NULL;
    char *memory = os_map(shape.mapped_bytes, shape.alignment, shape.offset_bytes);
    if (memory == NULL)
        return NULL;
    char *start = memory + shape.offset_bytes;
    char *end = memory + shape.mapped_bytes;
    if (huge) /* a refusal does no harm: small pages work as well */
        os_want_huge_pages(start, (size_t)(end - start));
    struct chunk *chunk = (struct chunk *)memory;
    *chunk = (struct chunk){
        .start = start, .end = end, .touched = start, .mapped_bytes = shape.mapped_bytes};
    return chunk;
}

struct chunk *chunk_over(void *memory, size_t bytes, size_t header_bytes)
{
    uintptr_t from = (uintptr_t)memory;
    size_t gap = chunk_round_up(from, CHUNK_ALIGNMENT) - from;
    size_t header = chunk_round_up(header_bytes, CHUNK_ALIGNMENT);
    if (bytes < gap || bytes - gap < header)
        return NULL;
    struct chunk *chunk = (struct chunk *)((char *)memory + gap);
    char *start = (char *)chunk + header;
    char *end = start + (bytes - gap - header) / CHUNK_ALIGNMENT * CHUNK_ALIGNMENT;
    /* The whole room counts as touched, because its contents are unknown. */
    *chunk = (struct chunk){.start = start, .end = end, .touched = end};
    return chunk;
}

bool chunk_unmap(struct chunk *chunk)
{
    return chunk->mapped_bytes == 0 || os_unmap(chunk, chunk->mapped_bytes);
}

char *chunk_fit(const struct chunk *chunk, char *from, size_t size, size_t alignment)
{
    size_t gap = -(uintptr_t)from & (alignment - 1);
    size_t room = (size_t)(chunk->end - from);
    return gap <= room && size <= room - gap ? from + gap : NULL;
}

void chunk_give_back(struct chunk *chunk, char *idle)
{
    size_t page = os_page_bytes();
    char *first = idle + (-(uintptr_t)idle & (page - 1));
    if (chunk->mapped_bytes == 0 || first >= chunk->touched)
        return;
    /* A mapped chunk ends with an OS page, so `last` does not pass the chunk's end. */
    char *last = chunk->touched + (-(uintptr_t)chunk->touched & (page - 1));
    if (os_give_back(first, (size_t)(last - first)))
        chunk->touched = first;
}

size_t chunk_touched_bytes(const struct chunk *chunk, const char *filled)
{
    const char *touched = filled > chunk->touched ? filled : chunk->touched;
    size_t bytes = chunk_round_up((size_t)(touched - (const char *)chunk), os_page_bytes());
    /* The caller's memory may end within an OS page. */
    size_t whole = (size_t)(chunk->end - (const char *)chunk);
    return bytes < whole ? bytes : whole;
}
