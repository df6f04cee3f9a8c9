/* arena.c - blocks lie one after the other in chunks. The chunks are in a list, in the order in
 * which they are filled:
 *
 *     first … full … current … spare
 *
 * Rewinding moves `current` back. The chunks behind `current` are spare. They are filled again
 * before new chunks are mapped. While idle memory is watched (guard.h), every block has a trailer,
 * so that the blocks can be walked from the newest to the oldest.
 */
#include "cairn/arena.h"
#include "arena/chunk.h"
#include "arena/guard.h"
#include "os/os.h"

#include <assert.h>
#include <string.h>

#define FIRST_STEP_BYTES ((size_t)64 << 10)
#define LAST_STEP_BYTES  ((size_t)64 << 20)
#define AUTO_HUGE_BYTES  ((size_t)32 << 20)

struct arena {
    struct cairn_arena face; /* the public part */
    struct chunk *first;
    struct chunk *current;
    size_t mapped_bytes;
    size_t limit_bytes; /* SIZE_MAX: no limit */
    size_t high_water_bytes;
    size_t serial; /* number of the last mark; used if blocks are watched */
    enum cairn_arena_huge huge;
    enum guard guard;
    bool fixed;
};

/* Lies at the end of a watched block, after its rounded size. A mark is a watched block of 0
 * bytes. */
struct trailer {
    /* The value of the arena's `next` before this block and before the gap that aligns the
     * block. */
    char *before;
    size_t size;
    size_t serial; /* number of the mark; 0 if this is an ordinary block */
    uintptr_t seal;
};

enum { HEADER_BYTES = sizeof(struct chunk) + sizeof(struct arena) };

static_assert(HEADER_BYTES + 2 * CHUNK_ALIGNMENT <= CAIRN_ARENA_OWN_BYTES,
              "an arena's own data fits into the bytes that arena.h promises");
static_assert(sizeof(struct trailer) % CHUNK_ALIGNMENT == 0, "the next block may follow at once");
static_assert(CAIRN_ARENA_ALIGNMENT == CHUNK_ALIGNMENT,
              "chunks have the alignment that arena.h promises");

/* The external definitions of the inline functions, for callers that do not compile the header. */
extern inline void *cairn_arena_alloc(struct cairn_arena *arena, size_t size);
extern inline void *cairn_arena_alloc_array(struct cairn_arena *arena, size_t count, size_t size);

static size_t max(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t round_up(size_t size)
{
    return chunk_round_up(size, CHUNK_ALIGNMENT);
}

static size_t allocated_bytes(const struct arena *arena)
{
    return arena->current->before_bytes + (size_t)(arena->face.next - arena->current->start);
}

/* Returns the end of the chunk's used part. For the current chunk, this is `next`. For an earlier
 * chunk, it is the value that `next` had when the next chunk became current. */
static char *used_end(const struct arena *arena, const struct chunk *chunk)
{
    return chunk == arena->current
               ? arena->face.next
               : chunk->start + (chunk->later->before_bytes - chunk->before_bytes);
}

static void set_current(struct arena *arena, struct chunk *chunk, char *next)
{
    arena->current = chunk;
    arena->face.next = next;
    arena->face.end = arena->guard == GUARD_NONE ? chunk->end : next;
}

_Noreturn static void complain(const struct arena *arena, const char *what, const void *where)
{
    guard_complain("arena", arena, what, where);
}

/* --- watched blocks --------------------------------------------------------------------------- */

GUARD_MAY_LOOK static uintptr_t seal_of(const struct trailer *trailer)
{
    uintptr_t mixed = (uintptr_t)trailer ^ (uintptr_t)trailer->before ^ trailer->size;
    return (mixed ^ trailer->serial) * (uintptr_t)UINT64_C(0x9E3779B97F4A7C15) + 1;
}

GUARD_MAY_LOOK static void trailer_write(char *at, char *before, size_t size, size_t serial)
{
    struct trailer *trailer = (struct trailer *)at;
    trailer->before = before;
    trailer->size = size;
    trailer->serial = serial;
    trailer->seal = seal_of(trailer);
}

/* Returns the trailer that ends at `end`, or NULL if there is none. */
GUARD_MAY_LOOK static struct trailer *trailer_before(const struct chunk *chunk, const char *end)
{
    size_t offset = (size_t)(end - chunk->start);
    if (offset < sizeof(struct trailer))
        return NULL;
    struct trailer *trailer = (struct trailer *)(chunk->start + offset) - 1;
    return trailer->seal == seal_of(trailer) ? trailer : NULL;
}

GUARD_MAY_LOOK static struct trailer trailer_read(const struct trailer *trailer)
{
    struct trailer copy;
    copy.before = trailer->before;
    copy.size = trailer->size;
    copy.serial = trailer->serial;
    copy.seal = trailer->seal;
    return copy;
}

/* Verifies that no block between `from` and `to` was written past its end, and that no gap between
 * them was written to. */
static void verify_blocks(const struct arena *arena, const struct chunk *chunk, const char *from,
                          const char *to)
{
    while (to > from) {
        const struct trailer *found = trailer_before(chunk, to);
        if (found == NULL)
            complain(arena, "a block was written past its end; its trailer ends", to);
        struct trailer trailer = trailer_read(found);
        const char *block = (const char *)found - round_up(trailer.size);
        const char *end = block + trailer.size;
        const void *disturbed =
            guard_disturbed(arena->guard, end, (size_t)((const char *)found - end));
        if (disturbed != NULL)
            complain(arena, "a block was written past its end", disturbed);
        disturbed = guard_disturbed(arena->guard, trailer.before, (size_t)(block - trailer.before));
        if (disturbed != NULL)
            complain(arena, "memory between two blocks was written to", disturbed);
        to = trailer.before;
    }
}

/* Verifies that idle memory between `from` and `to` still holds the pattern. Memory that was never
 * handed out holds no pattern. */
static void verify_idle(const struct arena *arena, const struct chunk *chunk, const char *from,
                        const char *to)
{
    const char *end = to < chunk->touched ? to : chunk->touched;
    const void *disturbed =
        from < end ? guard_disturbed(arena->guard, from, (size_t)(end - from)) : NULL;
    if (disturbed != NULL)
        complain(arena, "memory was written to after it was rewound or reset", disturbed);
}

static void verify_all(const struct arena *arena)
{
    if (arena->guard == GUARD_NONE)
        return;
    bool in_use = true;
    for (const struct chunk *chunk = arena->first; chunk != NULL; chunk = chunk->later) {
        const char *end = in_use ? used_end(arena, chunk) : chunk->start;
        verify_blocks(arena, chunk, chunk->start, end);
        verify_idle(arena, chunk, end, chunk->end);
        in_use = in_use && chunk != arena->current;
    }
}

/* Erases the seals of the blocks that a rewind frees, so that a later rewind to a mark among these
 * blocks is refused. This is needed for AddressSanitizer (GUARD_ASAN), where idle memory keeps its
 * content. With GUARD_PATTERN, the pattern of idle memory then overwrites the seals. */
GUARD_MAY_LOOK static void erase_trailers(const struct chunk *chunk, const char *from,
                                          const char *to)
{
    while (to > from) {
        /* The trailer exists, because the blocks were verified. */
        struct trailer *trailer = trailer_before(chunk, to);
        to = trailer->before;
        trailer->seal = 0;
    }
}

/* Makes all memory idle from `next` in `chunk` on, up to the end of the current chunk's used
 * part. */
static void cover_from(struct arena *arena, struct chunk *chunk, char *next)
{
    if (arena->guard == GUARD_NONE)
        return;
    for (;; chunk = chunk->later, next = chunk->start) {
        char *end = used_end(arena, chunk);
        verify_blocks(arena, chunk, next, end);
        erase_trailers(chunk, next, end);
        guard_cover(arena->guard, next, (size_t)(end - next));
        if (chunk == arena->current)
            break;
    }
}

/* Begins to watch a chunk, all of which is idle. A pattern is written only to memory that was
 * touched before, so that the other pages stay untouched. */
static void cover_new(const struct arena *arena, struct chunk *chunk)
{
    char *end = arena->guard == GUARD_ASAN ? chunk->end : chunk->touched;
    guard_cover(arena->guard, chunk->start, (size_t)(end - chunk->start));
    if (chunk->mapped_bytes > 0)
        guard_adopt(arena->guard, chunk, chunk->mapped_bytes);
}

/* Stops watching a chunk that goes back to the kernel or to the caller. */
static void uncover_all(enum guard guard, struct chunk *chunk)
{
    guard_uncover(guard, chunk->start, chunk_room(chunk));
    if (chunk->mapped_bytes > 0)
        guard_abandon(guard, chunk, chunk->mapped_bytes);
}

/* --- growing ---------------------------------------------------------------------------------- */

static struct chunk *map_chunk(struct arena *arena, size_t header_bytes, size_t size, size_t step,
                               size_t alignment)
{
    size_t least = size;
    size_t wanted = max(size, step - header_bytes);
    bool huge = arena->huge == CAIRN_ARENA_HUGE_ON;
    if (arena->huge == CAIRN_ARENA_HUGE_AUTO)
        huge = max(size, step) >= AUTO_HUGE_BYTES;
    if (huge)
        wanted = max(wanted, chunk_round_up(wanted, OS_HUGE_PAGE_BYTES));

    size_t page = os_page_bytes();
    size_t left = (arena->limit_bytes - arena->mapped_bytes) / page * page;
    size_t least_mapped = chunk_mapped_bytes(header_bytes, least, alignment, huge);
    if (least_mapped == 0 || least_mapped > left)
        return NULL;
    wanted = min(wanted, least + (left - least_mapped));

    struct chunk *chunk = chunk_map(header_bytes, wanted, alignment, huge);
    if (chunk == NULL && wanted > least)
        chunk = chunk_map(header_bytes, least, alignment, huge);
    return chunk;
}

/* Makes a spare chunk current, if one is large enough. Otherwise maps a new chunk and makes it
 * current. Returns false if there is no memory. */
static bool grow(struct arena *arena, size_t size, size_t alignment)
{
    struct chunk *current = arena->current;
    struct chunk *chunk = NULL;
    struct chunk **link = &current->later;
    while (*link != NULL && chunk_fit(*link, (*link)->start, size, alignment) == NULL)
        link = &(*link)->later;
    if (*link != NULL) {
        chunk = *link;
        *link = chunk->later;
    } else if (!arena->fixed && size <= PTRDIFF_MAX) {
        size_t step = min(max(arena->mapped_bytes, FIRST_STEP_BYTES), LAST_STEP_BYTES);
        chunk = map_chunk(arena, sizeof(struct chunk), round_up(size), step, alignment);
        if (chunk != NULL) {
            arena->mapped_bytes += chunk->mapped_bytes;
            cover_new(arena, chunk);
        }
    }
    if (chunk == NULL)
        return false;

    chunk->later = current->later;
    current->later = chunk;
    chunk->before_bytes = allocated_bytes(arena);
    chunk_note_touched(current, arena->face.next);
    set_current(arena, chunk, chunk->start);
    return true;
}

/* Takes a block from the current chunk, or from a further chunk. Every allocation except the inline
 * fast path calls this function. With a guard, `size` includes the trailer. Returns NULL if there
 * is no memory. */
static char *take(struct arena *arena, size_t size, size_t alignment)
{
    char *block = chunk_fit(arena->current, arena->face.next, size, alignment);
    if (UNLIKELY(block == NULL)) {
        if (!grow(arena, size, alignment))
            return NULL;
        block = chunk_fit(arena->current, arena->face.next, size, alignment);
    }
    set_current(arena, arena->current, block + round_up(size));
    return block;
}

static void *take_watched(struct arena *arena, size_t size, size_t alignment, size_t serial)
{
    if (size > PTRDIFF_MAX)
        return NULL;
    struct chunk *chunk = arena->current;
    char *before = arena->face.next;
    char *block = take(arena, round_up(size) + sizeof(struct trailer), alignment);
    if (block == NULL)
        return NULL;
    if (arena->current != chunk)
        before = arena->current->start;
    char *next = arena->face.next;
    verify_idle(arena, arena->current, before, next);
    guard_cover(arena->guard, before, (size_t)(next - before));
    guard_uncover(arena->guard, block, size);
    trailer_write(next - sizeof(struct trailer), before, size, serial);
    return block;
}

void *cairn_arena_alloc_slow(struct cairn_arena *face, size_t size)
{
    struct arena *arena = (struct arena *)face;
    if (arena->guard != GUARD_NONE)
        return take_watched(arena, size, CHUNK_ALIGNMENT, 0);
    return take(arena, size, CHUNK_ALIGNMENT);
}

void *cairn_arena_alloc_aligned(struct cairn_arena *face, size_t size, size_t alignment)
{
    struct arena *arena = (struct arena *)face;
    if (alignment == 0 || (alignment & (alignment - 1)) != 0)
        return NULL;
    if (arena->guard != GUARD_NONE)
        return take_watched(arena, size, max(alignment, CHUNK_ALIGNMENT), 0);
    return take(arena, size, max(alignment, CHUNK_ALIGNMENT));
}

void *cairn_arena_alloc_zeroed(struct cairn_arena *face, size_t count, size_t size)
{
    struct arena *arena = (struct arena *)face;
    char *block = cairn_arena_alloc_array(face, count, size);
    if (block == NULL)
        return NULL;
    size_t used = count * size;
    if (arena->guard == GUARD_NONE) {
        char *touched = arena->current->touched;
        used = block < touched ? min(used, (size_t)(touched - block)) : 0;
    }
    memset(block, 0, used);
    return block;
}

void *cairn_arena_memdup(struct cairn_arena *arena, const void *data, size_t size)
{
    void *copy = cairn_arena_alloc(arena, size);
    if (copy != NULL && size > 0)
        memcpy(copy, data, size);
    return copy;
}

char *cairn_arena_strdup(struct cairn_arena *arena, const char *text)
{
    return cairn_arena_memdup(arena, text, strlen(text) + 1);
}

char *cairn_arena_strndup(struct cairn_arena *arena, const char *text, size_t max_length)
{
    size_t length = strnlen(text, max_length);
    char *copy = cairn_arena_alloc(arena, length + 1);
    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

/* Updates the highest number of allocated bytes, and the touched part of the current chunk. Called
 * before blocks are freed. */
static void note_peak(struct arena *arena)
{
    arena->high_water_bytes = max(arena->high_water_bytes, allocated_bytes(arena));
    chunk_note_touched(arena->current, arena->face.next);
}

static bool resize_newest(struct arena *arena, char *block, size_t old_size, size_t new_size)
{
    if (block + round_up(old_size) != arena->face.next ||
        new_size > (size_t)(arena->current->end - block))
        return false;
    note_peak(arena);
    set_current(arena, arena->current, block + round_up(new_size));
    return true;
}

static bool resize_newest_watched(struct arena *arena, char *block, size_t old_size,
                                  size_t new_size)
{
    struct chunk *chunk = arena->current;
    char *next = arena->face.next;
    const struct trailer *found = trailer_before(chunk, next);
    if (found == NULL)
        return false;
    struct trailer trailer = trailer_read(found);
    if (trailer.serial != 0 || block != (const char *)found - round_up(trailer.size))
        return false;
    if (old_size > trailer.size)
        complain(arena, "a block was resized that has fewer bytes than the given old size,", block);
    /* The sizes differ if `block` is a block of 0 bytes at the address of the newest block, or if
     * `block` was shrunk while another block was the newest one. */
    if (round_up(old_size) != round_up(trailer.size))
        return false;
    size_t room = (size_t)(chunk->end - block) - sizeof(struct trailer);
    if (new_size > room)
        return false;

    verify_blocks(arena, chunk, trailer.before, next);
    note_peak(arena);
    char *new_next = block + round_up(new_size) + sizeof(struct trailer);
    verify_idle(arena, chunk, next, new_next);
    char *idle = block + min(old_size, new_size);
    char *end = next > new_next ? next : new_next;
    guard_uncover(arena->guard, block, new_size);
    guard_cover(arena->guard, idle, (size_t)(end - idle));
    guard_uncover(arena->guard, block, new_size);
    trailer_write(new_next - sizeof(struct trailer), trailer.before, new_size, 0);
    set_current(arena, chunk, new_next);
    return true;
}

void *cairn_arena_resize(struct cairn_arena *face, void *block, size_t old_size, size_t new_size)
{
    struct arena *arena = (struct arena *)face;
    if (block != NULL) {
        bool done = arena->guard == GUARD_NONE
                        ? resize_newest(arena, block, old_size, new_size)
                        : resize_newest_watched(arena, block, old_size, new_size);
        if (done || new_size <= old_size)
            return block;
    }
    void *copy = cairn_arena_alloc(face, new_size);
    if (copy != NULL && block != NULL)
        memcpy(copy, block, min(old_size, new_size));
    return copy;
}

/* --- marks ------------------------------------------------------------------------------------ */

/* Returns the serial of a mark at the arena's `next`. A mark that is already there serves again, so
 * that setting a mark and rewinding to it any number of times takes no more memory. Returns 0 if
 * there is no memory for a new mark. */
static size_t set_mark(struct arena *arena)
{
    const struct trailer *newest = trailer_before(arena->current, arena->face.next);
    if (newest != NULL && trailer_read(newest).serial != 0)
        return trailer_read(newest).serial;
    return take_watched(arena, 0, CHUNK_ALIGNMENT, arena->serial + 1) != NULL ? ++arena->serial : 0;
}

struct cairn_arena_point cairn_arena_mark(struct cairn_arena *face)
{
    struct arena *arena = (struct arena *)face;
    size_t serial = arena->guard == GUARD_NONE ? 0 : set_mark(arena);
    return (struct cairn_arena_point){
        .next = arena->face.next, .chunk = arena->current, .serial = serial};
}

static bool mark_is_valid(const struct arena *arena, struct cairn_arena_point mark)
{
    const struct chunk *chunk = arena->first;
    while (chunk != mark.chunk && chunk != arena->current)
        chunk = chunk->later;
    if (chunk != mark.chunk || mark.next < chunk->start || mark.next > used_end(arena, chunk))
        return false;
    const struct trailer *newest = trailer_before(chunk, mark.next);
    return mark.serial == 0 || (newest != NULL && trailer_read(newest).serial == mark.serial);
}

void cairn_arena_rewind(struct cairn_arena *face, struct cairn_arena_point mark)
{
    struct arena *arena = (struct arena *)face;
    if (arena->guard != GUARD_NONE && !mark_is_valid(arena, mark))
        complain(arena, "rewound to a mark that is no longer valid,", mark.next);
    note_peak(arena);
    cover_from(arena, mark.chunk, mark.next);
    set_current(arena, mark.chunk, mark.next);
}

void cairn_arena_reset(struct cairn_arena *face)
{
    struct arena *arena = (struct arena *)face;
    verify_all(arena);
    note_peak(arena);
    cover_from(arena, arena->first, arena->first->start);
    set_current(arena, arena->first, arena->first->start);
}

/* --- giving back ------------------------------------------------------------------------------ */

static bool unmap(const struct arena *arena, struct chunk *chunk)
{
    uncover_all(arena->guard, chunk);
    if (chunk_unmap(chunk))
        return true;
    cover_new(arena, chunk);
    chunk_give_back(chunk, chunk->start);
    return false;
}

void cairn_arena_trim(struct cairn_arena *face, size_t keep_bytes)
{
    struct arena *arena = (struct arena *)face;
    verify_all(arena);
    struct chunk *current = arena->current;
    size_t kept = min(keep_bytes, (size_t)(current->end - arena->face.next));
    chunk_give_back(current, arena->face.next + kept);
    for (struct chunk **link = &current->later; *link != NULL;) {
        struct chunk *chunk = *link;
        struct chunk *later = chunk->later;
        size_t mapped_bytes = chunk->mapped_bytes;
        keep_bytes -= kept;
        kept = min(keep_bytes, chunk_room(chunk));
        if (kept == 0 && unmap(arena, chunk)) {
            arena->mapped_bytes -= mapped_bytes;
            *link = later;
            continue;
        }
        chunk_give_back(chunk, chunk->start + kept);
        link = &chunk->later;
    }
}

void cairn_arena_destroy(struct cairn_arena *face)
{
    struct arena *arena = (struct arena *)face;
    if (arena == NULL)
        return;
    verify_all(arena);
    struct chunk *first = arena->first;
    for (struct chunk *chunk = first->later; chunk != NULL;) {
        struct chunk *later = chunk->later;
        unmap(arena, chunk);
        chunk = later;
    }
    uncover_all(arena->guard, first);
    if (!chunk_unmap(first)) /* the arena itself lies in this chunk */
        chunk_give_back(first, first->start);
}

/* --- creating --------------------------------------------------------------------------------- */

struct cairn_arena *cairn_arena_create_with(const struct cairn_arena_options *options)
{
    struct arena draft = {
        .limit_bytes = options->limit_bytes > 0 ? options->limit_bytes : SIZE_MAX,
        .huge = options->huge,
        .fixed = options->fixed,
        .guard = guard_choose(options->checked == CAIRN_ARENA_CHECKED_ON,
                              options->checked == CAIRN_ARENA_CHECKED_AUTO),
    };
    struct chunk *first = NULL;
    if (options->memory != NULL)
        first = chunk_over(options->memory, options->memory_bytes, HEADER_BYTES);
    else if (!options->fixed && options->size_hint <= PTRDIFF_MAX)
        first = map_chunk(&draft, HEADER_BYTES, round_up(options->size_hint), FIRST_STEP_BYTES,
                          CHUNK_ALIGNMENT);
    if (first == NULL)
        return NULL;
    draft.first = first;
    draft.mapped_bytes = first->mapped_bytes;
    cover_new(&draft, first);
    set_current(&draft, first, first->start);

    struct arena *arena = (struct arena *)(first + 1);
    *arena = draft;
    return &arena->face;
}

struct cairn_arena *cairn_arena_create(size_t size_hint)
{
    return cairn_arena_create_with(&(struct cairn_arena_options){.size_hint = size_hint});
}

struct cairn_arena *cairn_arena_create_over(void *memory, size_t bytes)
{
    if (memory == NULL)
        return NULL;
    return cairn_arena_create_with(
        &(struct cairn_arena_options){.memory = memory, .memory_bytes = bytes, .fixed = true});
}

/* --- statistics and checks -------------------------------------------------------------------- */

struct cairn_arena_stats cairn_arena_statistics(const struct cairn_arena *face)
{
    const struct arena *arena = (const struct arena *)face;
    struct cairn_arena_stats statistics = {
        .allocated_bytes = allocated_bytes(arena),
        .high_water_bytes = max(arena->high_water_bytes, allocated_bytes(arena)),
        .mapped_bytes = arena->mapped_bytes,
    };
    bool in_use = true;
    for (const struct chunk *chunk = arena->first; chunk != NULL; chunk = chunk->later) {
        statistics.reserved_bytes += (size_t)(chunk->end - (const char *)chunk);
        statistics.touched_bytes +=
            chunk_touched_bytes(chunk, in_use ? used_end(arena, chunk) : chunk->start);
        statistics.chunk_count++;
        in_use = in_use && chunk != arena->current;
    }
    return statistics;
}

void cairn_arena_check(const struct cairn_arena *face)
{
#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            complain(arena, "not true: " #condition, chunk);                                       \
    } while (0)
    const struct arena *arena = (const struct arena *)face;
    const struct chunk *chunk = arena->current;
    HOLDS((uintptr_t)arena->face.next % CHUNK_ALIGNMENT == 0);
    HOLDS((size_t)(arena->face.end - arena->face.next) % CHUNK_ALIGNMENT == 0);
    HOLDS(chunk->start <= arena->face.next && arena->face.next <= chunk->end);
    HOLDS(arena->face.end == (arena->guard == GUARD_NONE ? chunk->end : arena->face.next));
    HOLDS(arena->mapped_bytes <= arena->limit_bytes);
    size_t mapped = 0;
    size_t before = 0;
    bool in_use = true;
    for (chunk = arena->first; chunk != NULL; chunk = chunk->later) {
        HOLDS((uintptr_t)chunk->start % CHUNK_ALIGNMENT == 0 &&
              (uintptr_t)chunk->end % CHUNK_ALIGNMENT == 0);
        HOLDS(chunk->start <= chunk->touched && chunk->touched <= chunk->end);
        HOLDS(chunk->mapped_bytes > 0 || chunk == arena->first);
        mapped += chunk->mapped_bytes;
        if (in_use) {
            HOLDS(chunk->before_bytes == before);
            HOLDS(chunk->start <= used_end(arena, chunk) && used_end(arena, chunk) <= chunk->end);
            before += (size_t)(used_end(arena, chunk) - chunk->start);
        }
        in_use = in_use && chunk != arena->current;
    }
    HOLDS(!in_use);
    HOLDS(mapped == arena->mapped_bytes);
    verify_all(arena);
#undef HOLDS
}
