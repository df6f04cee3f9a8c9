/* chunk.h - one piece of memory that an arena fills from its start to its end.
 *
 * The record lies in front of the room that it describes. Where huge pages are wanted or a large alignment, the room
 * begins at the next OS page, so that looking at the record does not touch it. Between calls, always:
 *
 *     start <= touched <= end, and start and end are multiples of CHUNK_ALIGNMENT
 *     the bytes from `touched` to `end` read as zero, unless they were handed out since the chunk became current
 */
#ifndef CAIRN_ARENA_CHUNK_H
#define CAIRN_ARENA_CHUNK_H

#include "base/base.h"

#define CHUNK_ALIGNMENT ((size_t)16)

struct chunk {
    struct chunk *later; /* filled after this one, or not yet in use */
    char *start;
    char *end;
    char *touched;
    size_t before_bytes; /* handed out from the chunks before this one; while it is in use */
    size_t mapped_bytes; /* taken from the machine, record included; 0: the caller's memory */
};

static inline size_t chunk_room(const struct chunk *chunk)
{
    return (size_t)(chunk->end - chunk->start);
}

/* `value` rounded up to a multiple of a power of two; less than `value` where that overflows. */
static inline size_t chunk_round_up(size_t value, size_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

/* What chunk_map() would take from the machine; 0 where that overflows. */
size_t chunk_mapped_bytes(size_t header_bytes, size_t room_bytes, size_t alignment, bool huge);

/* A chunk with room for at least `room_bytes` from an address of `alignment`, with `header_bytes` from the record on
 * that it leaves alone: the record, and what the caller puts behind it. NULL: refused. */
struct chunk *chunk_map(size_t header_bytes, size_t room_bytes, size_t alignment, bool huge);

/* A chunk in memory that is not ours. NULL: too small. */
struct chunk *chunk_over(void *memory, size_t bytes, size_t header_bytes);

/* False: the kernel refused. It is still mapped, and its contents are as they were. */
bool chunk_unmap(struct chunk *chunk);

/* A block may begin here, at the earliest `from`, and ends in the chunk; NULL: it does not fit. */
char *chunk_fit(const struct chunk *chunk, char *from, size_t size, size_t alignment);

/* Everything below `filled` was handed out. */
static inline void chunk_note_touched(struct chunk *chunk, char *filled)
{
    if (filled > chunk->touched)
        chunk->touched = filled;
}

/* Gives the OS pages from `idle` on back. Nothing from there on is anybody's. */
void chunk_give_back(struct chunk *chunk, char *idle);

/* The most that can be resident, when it is filled to `filled`. */
size_t chunk_touched_bytes(const struct chunk *chunk, const char *filled);

#endif
