/* arena.h - memory that is given back all at once: arenas, and pools of equal objects.
 *
 * An arena hands out blocks one after the other from large chunks and takes them back together: to a mark, or all
 * of them. A pool hands out objects of one size and takes each of them back. Neither calls malloc, and both work
 * beside any malloc.
 *
 *     struct cairn_arena *arena = cairn_arena_create(0);
 *     char *name = cairn_arena_strdup(arena, "cairn");
 *     struct cairn_arena_point mark = cairn_arena_mark(arena);
 *     ... = cairn_arena_alloc(arena, 1000);
 *     cairn_arena_rewind(arena, mark);            the 1000 bytes are back, `name` stays
 *     cairn_arena_destroy(arena);
 *
 * Sizes are in bytes. What holds for every function here:
 *
 *     No memory, beyond the limit, or a size that overflows: NULL. Nothing aborts for lack of memory, and after a
 *     NULL everything is as it was before the call.
 *     errno is left as it was.
 *     An arena, and a pool that is not shared, is used by one thread at a time. Different ones know nothing of each
 *     other, so that each thread can have its own.
 *     A pointer that came from here is given only to functions of the same arena or pool; what is destroyed is not
 *     used again.
 *
 * Found wrong in a checked arena or pool (see `checked`): one line on stderr and abort().
 */
#ifndef CAIRN_ARENA_H
#define CAIRN_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum {
    CAIRN_ARENA_ALIGNMENT = 16,  /* of every block, where nothing else was asked for */
    CAIRN_ARENA_OWN_BYTES = 256, /* the most that an arena itself takes of the caller's memory */
};

/* All that the inline path below needs to know. The rest stands behind it in the library, so that an arena exists
 * only where cairn_arena_create() put it. Read by anyone, written only from here. Between calls, always:
 *
 *     next is a multiple of CAIRN_ARENA_ALIGNMENT, and so is end - next
 *     the bytes from next to end belong to nobody
 *     next == end where every block must go through cairn_arena_alloc_slow(): in a checked arena, under ASan
 */
struct cairn_arena {
    char *next;
    char *end;
};

/* Transparent huge pages make the first touch of much memory several times cheaper, and up to 2 MiB resident before
 * they are used. */
enum cairn_arena_huge {
    CAIRN_ARENA_HUGE_AUTO, /* chunks of 32 MiB and more ask for them */
    CAIRN_ARENA_HUGE_ON, /* every chunk does; room for 2 MiB or a multiple, where the limit allows */
    CAIRN_ARENA_HUGE_NEVER, /* none does; a machine that gives them unasked still does */
};

/* A checked arena fills what comes back with a pattern, looks for it when it hands the memory out again and when it
 * is reset or destroyed, and so finds who wrote to memory that was no longer his; it finds writes past the end of a
 * block, and a mark that was rewound past. Every allocation is then slow, and takes up to 48 bytes more.
 *
 * Where the program is built with AddressSanitizer, the same mistakes are found by it at once, and `checked` adds
 * nothing. The library finds that out by itself: it need not be built with it. */
enum cairn_arena_checked {
    CAIRN_ARENA_CHECKED_AUTO, /* if the environment has CAIRN_ARENA_CHECKED, neither empty nor 0 */
    CAIRN_ARENA_CHECKED_ON,
    CAIRN_ARENA_CHECKED_OFF,
};

/* All zero is the default. */
struct cairn_arena_options {
    size_t size_hint;    /* so much fits into the first chunk; 0: about 64 KiB */
    size_t limit_bytes;  /* the most that it has from the machine at a time; 0: no limit */
    void *memory;        /* the caller's, instead of a first chunk; outlives the arena; or NULL */
    size_t memory_bytes; /* of `memory`; at least CAIRN_ARENA_OWN_BYTES */
    bool fixed;          /* take none from the machine: NULL when `memory` is full */
    enum cairn_arena_huge huge;
    enum cairn_arena_checked checked;
};

/* NULL for want of memory, or where the options contradict themselves: `fixed` without `memory`. */
struct cairn_arena *cairn_arena_create(size_t size_hint);
struct cairn_arena *cairn_arena_create_with(const struct cairn_arena_options *options);

/* A fixed arena in the caller's memory: in static memory, on the stack, in a block of another arena. */
struct cairn_arena *cairn_arena_create_over(void *memory, size_t bytes);

/* Every block is back, every chunk unmapped. NULL is allowed. */
void cairn_arena_destroy(struct cairn_arena *arena);

/* What the inline path cannot do: take another chunk, or check. */
void *cairn_arena_alloc_slow(struct cairn_arena *arena, size_t size) __attribute__((cold));

/* A block of `size` bytes, aligned to CAIRN_ARENA_ALIGNMENT, its contents unspecified. A block of 0 bytes is not NULL,
 * and is not read or written; the next block may begin at the same address.
 *
 * The room is a multiple of the alignment: a size that fits does so too when it is rounded up, and cannot overflow. */
inline void *cairn_arena_alloc(struct cairn_arena *arena, size_t size)
{
    char *block = arena->next;
    if (__builtin_expect(size > (size_t)(arena->end - block), 0))
        return cairn_arena_alloc_slow(arena, size);
    arena->next =
        block + ((size + CAIRN_ARENA_ALIGNMENT - 1) & ~(size_t)(CAIRN_ARENA_ALIGNMENT - 1));
    return block;
}

/* `alignment` is a power of two, or the result is NULL. Less than CAIRN_ARENA_ALIGNMENT means that. */
void *cairn_arena_alloc_aligned(struct cairn_arena *arena, size_t size, size_t alignment);

/* `count` times `size` bytes, all zero. What the kernel has just given is known to be, and is not touched. */
void *cairn_arena_alloc_zeroed(struct cairn_arena *arena, size_t count, size_t size);

/* `count` times `size` bytes. NULL where the product overflows. */
inline void *cairn_arena_alloc_array(struct cairn_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    return cairn_arena_alloc(arena, bytes);
}

/* Copies. strndup() takes at most `max` bytes of text, and always ends it. */
void *cairn_arena_memdup(struct cairn_arena *arena, const void *data, size_t size);
char *cairn_arena_strdup(struct cairn_arena *arena, const char *text);
char *cairn_arena_strndup(struct cairn_arena *arena, const char *text, size_t max);

/* Makes a block of `old_size` bytes one of `new_size`, as realloc() would: the contents stay as far as both reach. In
 * place where it is the newest block and there is room, or where it shrinks; else a copy, aligned to
 * CAIRN_ARENA_ALIGNMENT, and the old block is lost until the arena is rewound. NULL: the block is as it was. A `block`
 * of NULL has no bytes. Shrinking the newest block gives its end back to the arena: to 0 bytes, all of it.
 *
 * Not for a block that is older than a mark which will be rewound to: what it has gained since would be lost. */
void *cairn_arena_resize(struct cairn_arena *arena, void *block, size_t old_size, size_t new_size);

/* A point in the life of an arena, to come back to; the members are the library's. Needs no release. */
struct cairn_arena_point {
    char *next;
    void *chunk;
    size_t serial;
};

struct cairn_arena_point cairn_arena_mark(struct cairn_arena *arena);

/* All blocks that were handed out since the mark are back. It takes the same time however many these are, and keeps
 * their memory for the next. Marks are nested: one can be rewound to any number of times, until the arena is rewound
 * to an earlier one, or reset. */
void cairn_arena_rewind(struct cairn_arena *arena, struct cairn_arena_point mark);

/* All blocks are back, and all memory is kept for the next. */
void cairn_arena_reset(struct cairn_arena *arena);

/* Gives memory that no block is in back to the machine, but for about `keep_bytes` of it: those that would be handed
 * out next. After a reset, cairn_arena_trim(arena, 0) leaves one empty chunk. The caller's memory is left alone. */
void cairn_arena_trim(struct cairn_arena *arena, size_t keep_bytes);

struct cairn_arena_stats {
    size_t allocated_bytes;  /* handed out, with what rounding and alignment added */
    size_t high_water_bytes; /* the most that allocated_bytes ever was */
    size_t reserved_bytes;   /* address space, used or not, the caller's memory included */
    size_t mapped_bytes;     /* of that, from the machine: what limit_bytes limits */
    size_t
        touched_bytes; /* of reserved_bytes, the most that can be resident; more with huge pages */
    size_t chunk_count;
};

/* Walks the chunks, of which there are few. */
struct cairn_arena_stats cairn_arena_statistics(const struct cairn_arena *arena);

/* Holds the arena against what is said of it here, and a checked one's idle memory against its pattern. */
void cairn_arena_check(const struct cairn_arena *arena);

/* Room for one object: CAIRN_ARENA_NEW(arena, struct point) is a struct point *, or NULL. */
#define CAIRN_ARENA_NEW(arena, type)                                                               \
    ((type *)(__alignof__(type) <= CAIRN_ARENA_ALIGNMENT                                           \
                  ? cairn_arena_alloc((arena), sizeof(type))                                       \
                  : cairn_arena_alloc_aligned((arena), sizeof(type), __alignof__(type))))

/* An object that was given back; its first word is the pool's, unless that is checked. */
struct cairn_pool_slot {
    struct cairn_pool_slot *next;
};

/* As with struct cairn_arena: what the inline paths need to know. Between calls, always:
 *
 *     free is NULL and direct is false where every call must go through the library: in a pool that is shared or
 *     checked, and under ASan. They then never change.
 */
struct cairn_pool {
    struct cairn_pool_slot *free; /* given back and not yet handed out again, newest first */
    size_t used_count;            /* handed out and not given back */
    bool direct;
};

/* All zero but `object_bytes` is the default. */
struct cairn_pool_options {
    size_t object_bytes; /* at least 1 */
    size_t alignment; /* a power of two; 0: what the size implies, at most CAIRN_ARENA_ALIGNMENT */
    struct cairn_arena
        *arena;  /* takes all its memory from there, see below; NULL: an arena of its own */
    bool shared; /* any thread may use it at any time; every call then takes a lock */
    enum cairn_arena_checked
        checked; /* also finds what is given back twice, or to the wrong pool */
};

/* NULL for want of memory, or where the options make no sense.
 *
 * A pool in an arena takes from it as it grows and never gives back. It ends with the arena, and when the arena is
 * rewound to before the pool was made; rewinding to any later point would take memory from under it. An arena under a
 * shared pool is used by nobody else. */
struct cairn_pool *cairn_pool_create(size_t object_bytes, size_t alignment);
struct cairn_pool *cairn_pool_create_with(const struct cairn_pool_options *options);

/* All its objects are back at once. Memory that it took from the caller's arena stays with that. NULL is allowed. */
void cairn_pool_destroy(struct cairn_pool *pool);

/* What the inline paths cannot do. */
void *cairn_pool_alloc_slow(struct cairn_pool *pool);
void cairn_pool_free_slow(struct cairn_pool *pool, void *object);

/* An object, its contents unspecified. The one that was given back last is handed out first. */
inline void *cairn_pool_alloc(struct cairn_pool *pool)
{
    struct cairn_pool_slot *slot = pool->free;
    if (__builtin_expect(slot == NULL, 0))
        return cairn_pool_alloc_slow(pool);
    pool->free = slot->next;
    pool->used_count++;
    return slot;
}

/* NULL is allowed. */
inline void cairn_pool_free(struct cairn_pool *pool, void *object)
{
    if (__builtin_expect(object == NULL || !pool->direct, 0)) {
        cairn_pool_free_slow(pool, object);
        return;
    }
    struct cairn_pool_slot *slot = (struct cairn_pool_slot *)object;
    slot->next = pool->free;
    pool->free = slot;
    pool->used_count--;
}

/* All objects are back, and all memory is kept for the next ones. Of a shared pool: no other thread uses it now. */
void cairn_pool_reset(struct cairn_pool *pool);

struct cairn_pool_stats {
    size_t object_bytes;     /* that one takes, rounding included */
    size_t used_count;       /* handed out and not given back */
    size_t high_water_count; /* the most that were so at once, and at most 4 KiB of objects more */
    size_t reserved_bytes;   /* taken from the arena */
};

struct cairn_pool_stats cairn_pool_statistics(struct cairn_pool *pool);

/* Holds the pool against what is said of it here, and a checked one's idle memory against its pattern. Walks all
 * objects that were given back. */
void cairn_pool_check(struct cairn_pool *pool);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
