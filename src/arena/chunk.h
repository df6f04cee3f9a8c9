/* chunk.h - a piece of memory that an arena fills from its start to its end.
 *
 * The record, struct chunk, lies in front of the room, which is the memory for the blocks. For huge
 * pages or a large alignment, the room begins at the next OS page, so that reading the record does
 * not touch the room. Between calls, always:
 *
 *     start <= touched <= end, and start and end are multiples of CHUNK_ALIGNMENT
 *     the bytes from `touched` to `end` read as zero, unless they were handed out since the chunk
 *     became current
 */
#ifndef CAIRN_ARENA_CHUNK_H
#define CAIRN_ARENA_CHUNK_H

#include "base/base.h"

#define CHUNK_ALIGNMENT ((size_t)16)

struct chunk {
    struct chunk *later; /* the next chunk, which is filled later or is spare */
    char *start;
    char *end;
    char *touched;
    size_t before_bytes; /* bytes used in earlier chunks; valid while in use */
    size_t mapped_bytes; /* bytes from the kernel; 0 for the caller's memory */
};

static inline size_t chunk_room(const struct chunk *chunk)
{
    return (size_t)(chunk->end - chunk->start);
}

/* Returns `value` rounded up to a multiple of a power of two. If the result overflows, it is less
 * than `value`. */
static inline size_t chunk_round_up(size_t value, size_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

/* Returns how many bytes chunk_map() would take from the kernel, or 0 if that overflows. */
size_t chunk_mapped_bytes(size_t header_bytes, size_t room_bytes, size_t alignment, bool huge);

/* Maps a chunk with room for at least `room_bytes` at a multiple of `alignment`. The first
 * `header_bytes` hold the record, and data that the caller puts behind it. Returns NULL if the
 * kernel refuses. */
struct chunk *chunk_map(size_t header_bytes, size_t room_bytes, size_t alignment, bool huge);

/* Makes a chunk in the caller's memory. Returns NULL if the memory is too small. */
struct chunk *chunk_over(void *memory, size_t bytes, size_t header_bytes);

/* Unmaps the chunk, unless it lies in the caller's memory. Returns false if the kernel refused. The
 * chunk is then still mapped, with its contents. */
bool chunk_unmap(struct chunk *chunk);

/* Returns the first address, from `from` on, where a block of this size and alignment fits into the
 * chunk. Returns NULL if the block does not fit. */
char *chunk_fit(const struct chunk *chunk, char *from, size_t size, size_t alignment);

/* Notes that everything below `filled` may have been touched. */
static inline void chunk_note_touched(struct chunk *chunk, char *filled)
{
    if (filled > chunk->touched)
        chunk->touched = filled;
}

/* Gives the OS pages from `idle` on back to the kernel. The caller no longer needs their
 * contents. */
void chunk_give_back(struct chunk *chunk, char *idle);

/* Returns an upper bound of the resident bytes of a chunk that is filled to `filled`. */
size_t chunk_touched_bytes(const struct chunk *chunk, const char *filled);

#endif
