/* arena.h - arenas, which free all their blocks at once, and pools of equal objects.
 *
 * An arena hands out blocks one after the other from large chunks. It frees blocks together: all
 * blocks, or all that were handed out since a mark. A pool hands out objects of one size and frees
 * each object alone. Neither calls malloc, and both work beside any malloc.
 *
 *     struct cairn_arena *arena = cairn_arena_create(0);
 *     char *name = cairn_arena_strdup(arena, "cairn");
 *     struct cairn_arena_point mark = cairn_arena_mark(arena);
 *     ... = cairn_arena_alloc(arena, 1000);
 *     cairn_arena_rewind(arena, mark);            frees the 1000 bytes, but not `name`
 *     cairn_arena_destroy(arena);
 *
 * Sizes are in bytes. These rules hold for every function here:
 *
 *   - A function that allocates returns NULL if there is no memory, if the limit is reached, or if
 *     the size overflows. The state is then as before the call. No function aborts for lack of
 *     memory.
 *   - errno is unchanged.
 *   - One thread at a time uses an arena, or a pool that is not shared. Different arenas and pools
 *     are independent, so that each thread can have its own.
 *   - A pointer may be passed only to functions of the arena or pool that it came from, and not
 *     after the arena or pool was destroyed.
 *
 * If a checked arena or pool (see enum cairn_arena_checked) finds misuse, it writes one line to
 * stderr and calls abort().
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
    CAIRN_ARENA_ALIGNMENT = 16,  /* of every block, unless more is requested */
    CAIRN_ARENA_OWN_BYTES = 256, /* most bytes that an arena needs for itself */
};

/* The part of an arena that the inline path below needs. The library's own data lies directly
 * behind it, so an arena must not be copied or moved. Any code may read the members, but only this
 * header and the library write them. Between calls, always:
 *
 *     next is a multiple of CAIRN_ARENA_ALIGNMENT, and so is end - next
 *     the bytes from next to end are free
 *     next == end if every block must go through cairn_arena_alloc_slow(): in a checked arena,
 *     and under ASan
 */
struct cairn_arena {
    char *next;
    char *end;
};

/* Transparent huge pages make the first touch of large memory several times cheaper. In exchange,
 * up to 2 MiB are resident before they are used. */
enum cairn_arena_huge {
    CAIRN_ARENA_HUGE_AUTO, /* chunks of at least 32 MiB request huge pages */
    /* Every chunk requests huge pages, and has room for a multiple of 2 MiB if the limit allows
     * that. */
    CAIRN_ARENA_HUGE_ON,
    CAIRN_ARENA_HUGE_NEVER, /* no requests; the kernel may still use huge pages */
};

/* A checked arena fills freed memory with a pattern. It verifies the pattern when it hands the
 * memory out again and when it is reset or destroyed. So it finds writes to freed memory, writes
 * past the end of a block, and rewinds to a mark that an earlier rewind, or a reset, has ended.
 * Every allocation is then slow, and takes up to 48 bytes more.
 *
 * In a program that is built with AddressSanitizer, the sanitizer finds the same mistakes at once,
 * and `checked` has no effect. The library detects the sanitizer by itself, and need not be built
 * with it. */
enum cairn_arena_checked {
    CAIRN_ARENA_CHECKED_AUTO, /* on if CAIRN_ARENA_CHECKED is set, not empty and not 0 */
    CAIRN_ARENA_CHECKED_ON,
    CAIRN_ARENA_CHECKED_OFF,
};

/* If all members are zero, all have their defaults. */
struct cairn_arena_options {
    size_t size_hint;   /* bytes that fit into the first chunk; 0: about 64 KiB */
    size_t limit_bytes; /* the most memory taken from the kernel; 0: no limit */
    /* Memory of the caller that serves as the first chunk, and must outlive the arena. NULL: the
     * arena maps its first chunk. */
    void *memory;
    size_t memory_bytes; /* size of `memory`; at least CAIRN_ARENA_OWN_BYTES */
    bool fixed;          /* allocations fail if `memory` is full */
    enum cairn_arena_huge huge;
    enum cairn_arena_checked checked;
};

/* These functions create an arena. They return NULL if there is no memory, if `memory_bytes` is too
 * small, or if `fixed` is set without `memory`. */
struct cairn_arena *cairn_arena_create(size_t size_hint);
struct cairn_arena *cairn_arena_create_with(const struct cairn_arena_options *options);

/* Creates a fixed arena in the caller's memory: static memory, the stack, or a block of another
 * arena. */
struct cairn_arena *cairn_arena_create_over(void *memory, size_t bytes);

/* Frees every block and unmaps every chunk. NULL is allowed. */
void cairn_arena_destroy(struct cairn_arena *arena);

/* Slow path of cairn_arena_alloc(): takes another chunk, or checks. */
void *cairn_arena_alloc_slow(struct cairn_arena *arena, size_t size) __attribute__((cold));

/* Returns a block of `size` bytes, aligned to CAIRN_ARENA_ALIGNMENT. Its contents are unspecified.
 * A block of 0 bytes is not NULL and must not be read or written. The block after it may begin at
 * the same address.
 *
 * The number of free bytes is a multiple of the alignment. So a size that fits still fits after it
 * is rounded up, and the rounding cannot overflow. */
inline void *cairn_arena_alloc(struct cairn_arena *arena, size_t size)
{
    char *block = arena->next;
    if (__builtin_expect(size > (size_t)(arena->end - block), 0))
        return cairn_arena_alloc_slow(arena, size);
    arena->next =
        block + ((size + CAIRN_ARENA_ALIGNMENT - 1) & ~(size_t)(CAIRN_ARENA_ALIGNMENT - 1));
    return block;
}

/* Returns a block at a multiple of `alignment`, and at least of CAIRN_ARENA_ALIGNMENT. Returns NULL
 * if `alignment` is not a power of two. */
void *cairn_arena_alloc_aligned(struct cairn_arena *arena, size_t size, size_t alignment);

/* Returns `count` times `size` bytes, all zero. Memory that is fresh from the kernel is zero
 * already, and is not touched. */
void *cairn_arena_alloc_zeroed(struct cairn_arena *arena, size_t count, size_t size);

/* Returns `count` times `size` bytes. Returns NULL if the product overflows. */
inline void *cairn_arena_alloc_array(struct cairn_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    return cairn_arena_alloc(arena, bytes);
}

/* These functions copy data or text into the arena. cairn_arena_strndup() copies at most `max`
 * bytes of text and always adds a NUL. */
void *cairn_arena_memdup(struct cairn_arena *arena, const void *data, size_t size);
char *cairn_arena_strdup(struct cairn_arena *arena, const char *text);
char *cairn_arena_strndup(struct cairn_arena *arena, const char *text, size_t max);

/* Resizes a block from `old_size` to `new_size` bytes, as realloc() would: the contents stay up to
 * the smaller size. The block stays in place if it shrinks, or if it is the newest block and there
 * is room. Otherwise it is copied to a new block, aligned to CAIRN_ARENA_ALIGNMENT, and the old one
 * is lost until the arena is rewound. Returns NULL if there is no memory; the block is then
 * unchanged. If `block` is NULL, the function allocates a new block. If the newest block shrinks,
 * the arena reuses the freed end of the block, or the whole block if `new_size` is 0.
 *
 * The block must not be older than a mark to which the arena will be rewound. The rewind would free
 * the bytes that the block has gained since the mark. */
void *cairn_arena_resize(struct cairn_arena *arena, void *block, size_t old_size, size_t new_size);

/* A point in the life of an arena to which it can be rewound. The members belong to the library. A
 * point need not be released. */
struct cairn_arena_point {
    char *next;
    void *chunk;
    size_t serial;
};

struct cairn_arena_point cairn_arena_mark(struct cairn_arena *arena);

/* Frees all blocks that were handed out since the mark, and keeps their memory for new ones. The
 * rewind takes the same time for any number of blocks. Marks nest: the arena can be rewound to a
 * mark any number of times, until it is rewound to an earlier one or reset. */
void cairn_arena_rewind(struct cairn_arena *arena, struct cairn_arena_point mark);

/* Frees all blocks, and keeps all memory for new ones. */
void cairn_arena_reset(struct cairn_arena *arena);

/* Gives free memory back to the kernel, but keeps about `keep_bytes`: those that would be handed
 * out next. After a reset, cairn_arena_trim(arena, 0) leaves one empty chunk. The caller's memory
 * stays as it is. */
void cairn_arena_trim(struct cairn_arena *arena, size_t keep_bytes);

struct cairn_arena_stats {
    size_t allocated_bytes;  /* handed out, with rounding and alignment */
    size_t high_water_bytes; /* the highest value of allocated_bytes so far */
    size_t reserved_bytes;   /* address space, and the caller's memory */
    size_t mapped_bytes;     /* the part from the kernel, at most limit_bytes */
    /* Upper bound of the resident part of reserved_bytes. Huge pages may add to it. */
    size_t touched_bytes;
    size_t chunk_count;
};

/* Returns statistics. The call walks the chunks, of which there are few. */
struct cairn_arena_stats cairn_arena_statistics(const struct cairn_arena *arena);

/* Asserts the invariants of the arena and, if the arena is checked, the pattern in its free
 * memory. */
void cairn_arena_check(const struct cairn_arena *arena);

/* Allocates memory for one object: CAIRN_ARENA_NEW(arena, struct point) is a struct point *, or
 * NULL. */
#define CAIRN_ARENA_NEW(arena, type)                                                               \
    ((type *)(__alignof__(type) <= CAIRN_ARENA_ALIGNMENT                                           \
                  ? cairn_arena_alloc((arena), sizeof(type))                                       \
                  : cairn_arena_alloc_aligned((arena), sizeof(type), __alignof__(type))))

/* A free object. Its first word belongs to the pool, unless the pool is checked. */
struct cairn_pool_slot {
    struct cairn_pool_slot *next;
};

/* The part of a pool that the inline paths need. Between calls, always:
 *
 *     free is NULL and direct is false if every call must go through the library: in a pool that is
 *     shared or checked, and under ASan. The members `free` and `direct` then never change.
 */
struct cairn_pool {
    struct cairn_pool_slot *free; /* free objects, the last freed first */
    size_t used_count;            /* handed out and not given back */
    bool direct;
};

/* If all members except `object_bytes` are zero, they have their defaults. */
struct cairn_pool_options {
    size_t object_bytes; /* at least 1 */
    /* A power of two. 0: the largest one that divides the size, at most CAIRN_ARENA_ALIGNMENT. */
    size_t alignment;
    /* The pool takes all its memory from this arena (cairn_pool_create_with()). NULL: the pool has
     * an arena of its own. */
    struct cairn_arena *arena;
    bool shared; /* any thread may use the pool; every call takes a lock */
    /* Besides the mistakes that a checked arena finds, a checked pool finds objects that are given
     * back twice, or to the wrong pool. */
    enum cairn_arena_checked checked;
};

/* These functions create a pool. They return NULL if there is no memory, if `object_bytes` is 0 or
 * too large, or if `alignment` is neither 0 nor a power of two.
 *
 * A pool in an arena takes memory from the arena as the pool grows, and never gives any back. The
 * pool ends with the arena, or when the arena is rewound to before the pool was made. A rewind to
 * any later point would free memory that the pool uses, and is not allowed. No other code may use
 * the arena of a shared pool. */
struct cairn_pool *cairn_pool_create(size_t object_bytes, size_t alignment);
struct cairn_pool *cairn_pool_create_with(const struct cairn_pool_options *options);

/* Frees all objects at once, and ends the pool. Memory that it took from the caller's arena stays
 * in that arena. NULL is allowed. */
void cairn_pool_destroy(struct cairn_pool *pool);

/* Slow paths of cairn_pool_alloc() and cairn_pool_free(). */
void *cairn_pool_alloc_slow(struct cairn_pool *pool);
void cairn_pool_free_slow(struct cairn_pool *pool, void *object);

/* Returns an object with unspecified contents. The object that was given back last is handed out
 * first. */
inline void *cairn_pool_alloc(struct cairn_pool *pool)
{
    struct cairn_pool_slot *slot = pool->free;
    if (__builtin_expect(slot == NULL, 0))
        return cairn_pool_alloc_slow(pool);
    pool->free = slot->next;
    pool->used_count++;
    return slot;
}

/* Gives an object back. NULL is allowed. */
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

/* Frees all objects, and keeps all memory for new ones. No other thread may use a shared pool
 * meanwhile. */
void cairn_pool_reset(struct cairn_pool *pool);

struct cairn_pool_stats {
    size_t object_bytes; /* bytes per object, with rounding */
    size_t used_count;   /* handed out and not given back */
    /* The highest value of used_count so far. The number may be too high by up to 4 KiB of objects,
     * because objects are made ready in batches. */
    size_t high_water_count;
    size_t reserved_bytes; /* taken from the arena */
};

struct cairn_pool_stats cairn_pool_statistics(struct cairn_pool *pool);

/* Asserts the invariants of the pool and, if the pool is checked, the pattern in its free objects.
 * The call walks all free objects. */
void cairn_pool_check(struct cairn_pool *pool);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
