/* pool.c - objects of one size are cut from slabs, which come from an arena. Objects are made ready
 * in batches, in the order of their addresses. A freed object goes onto a list that is threaded
 * through the objects.
 *
 * While idle memory is watched (guard.h), a tag follows every object. The tag says whether the
 * object is in use, and links to the next idle one. So the pool's own data never lies within an
 * object, where the user may still write. Objects are then made ready one by one, and the object
 * that was freed first is handed out first: the longer it stays idle, the more late writes to it
 * are found.
 */
#include "arena/chunk.h"
#include "arena/guard.h"
#include "cairn/arena.h"

#include <assert.h>
#include <pthread.h>

#define FIRST_SLAB_BYTES ((size_t)4 << 10)
#define LAST_SLAB_BYTES  ((size_t)1 << 20)
#define BATCH_BYTES      ((size_t)4 << 10)

struct slab {
    struct slab *later; /* the next newer slab */
    char *start;        /* address of its first object */
    char *end;
};

struct pool {
    struct cairn_pool face; /* the public part */
    struct cairn_arena *arena;
    bool owns_arena;
    bool shared;
    enum guard guard;
    size_t object_bytes; /* as requested */
    size_t stride_bytes;
    size_t alignment;
    struct cairn_pool_slot *idle; /* free objects, unless face.free holds them */
    /* The idle objects of a watched pool that were freed first and last. Each idle object links to
     * the one freed next. Both are NULL if no object is idle. */
    char *oldest;
    char *newest;
    struct slab *first;
    struct slab *current; /* objects are cut from here; later slabs are unused */
    char *next;           /* the next object to be cut from `current` */
    size_t cut_count;     /* objects cut since the last reset */
    size_t high_water_count;
    size_t reserved_bytes;
    /* In a shared pool, guards all members above that change. */
    pthread_mutex_t lock;
};

/* Lies behind a watched object. */
struct tag {
    /* A checksum of the state and `later`. It comes first in the tag, because most writes past an
     * object's end are short. */
    uintptr_t seal;
    char *later; /* the object freed next after this one, or NULL */
};

enum state { IN_USE = 0x5A, IDLE = 0xA5 };

static_assert(sizeof(struct tag) % CHUNK_ALIGNMENT == 0, "a tag changes no usual alignment");

_Noreturn static void complain(const struct pool *pool, const char *what, const void *where)
{
    guard_complain("pool", pool, what, where);
}

static void enter(struct pool *pool)
{
    if (pool->shared)
        pthread_mutex_lock(&pool->lock);
}

static void leave(struct pool *pool)
{
    if (pool->shared)
        pthread_mutex_unlock(&pool->lock);
}

static size_t max(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* --- making objects ready --------------------------------------------------------------------- */

static struct slab *slab_of(struct pool *pool, size_t object_count)
{
    size_t offset = chunk_round_up(sizeof(struct slab), pool->alignment);
    size_t bytes;
    if (__builtin_mul_overflow(object_count, pool->stride_bytes, &bytes) ||
        __builtin_add_overflow(bytes, offset, &bytes))
        return NULL;
    char *memory =
        cairn_arena_alloc_aligned(pool->arena, bytes, max(pool->alignment, CHUNK_ALIGNMENT));
    if (memory == NULL)
        return NULL;
    struct slab *slab = (struct slab *)memory;
    *slab = (struct slab){.start = memory + offset, .end = memory + bytes};
    guard_cover(pool->guard, slab->start, bytes - offset);
    pool->reserved_bytes += bytes;
    return slab;
}

/* Makes the next slab the current one: an unused slab that a reset left, or a new slab that is as
 * large as all slabs before it together, within limits. Returns false if there is no memory. */
static bool next_slab(struct pool *pool)
{
    struct slab **link = pool->current == NULL ? &pool->first : &pool->current->later;
    if (*link == NULL) {
        size_t bytes = min(max(pool->reserved_bytes, FIRST_SLAB_BYTES), LAST_SLAB_BYTES);
        size_t count = max(bytes / pool->stride_bytes, 1);
        *link = slab_of(pool, count);
        if (*link == NULL && count > 1)
            *link = slab_of(pool, 1);
        if (*link == NULL)
            return false;
    }
    pool->current = *link;
    pool->next = pool->current->start;
    return true;
}

/* Cuts up to `*count` adjacent objects, at least one, and sets `*count` to their number. Returns
 * the first, or NULL if there is no memory. */
static char *cut(struct pool *pool, size_t *count)
{
    if (pool->current == NULL || pool->next == pool->current->end)
        if (!next_slab(pool))
            return NULL;
    char *object = pool->next;
    *count = min(*count, (size_t)(pool->current->end - object) / pool->stride_bytes);
    pool->next += *count * pool->stride_bytes;
    pool->cut_count += *count;
    pool->high_water_count = max(pool->high_water_count, pool->cut_count);
    return object;
}

/* --- a pool that is not watched --------------------------------------------------------------- */

static struct cairn_pool_slot **idle_list(struct pool *pool)
{
    return pool->face.direct ? &pool->face.free : &pool->idle;
}

static bool make_ready(struct pool *pool)
{
    size_t count = max(BATCH_BYTES / pool->stride_bytes, 1);
    char *object = cut(pool, &count);
    if (object == NULL)
        return false;
    struct cairn_pool_slot **link = idle_list(pool);
    for (; count > 0; count--, object += pool->stride_bytes) {
        *link = (struct cairn_pool_slot *)object;
        link = &(*link)->next;
    }
    *link = NULL;
    return true;
}

static void *take(struct pool *pool)
{
    struct cairn_pool_slot **list = idle_list(pool);
    if (*list == NULL && !make_ready(pool))
        return NULL;
    struct cairn_pool_slot *slot = *list;
    *list = slot->next;
    return slot;
}

static void put(struct pool *pool, void *object)
{
    struct cairn_pool_slot **list = idle_list(pool);
    struct cairn_pool_slot *slot = object;
    slot->next = *list;
    *list = slot;
}

/* --- a watched pool --------------------------------------------------------------------------- */

static struct tag *tag_of(const struct pool *pool, char *object)
{
    return (struct tag *)(object + pool->stride_bytes) - 1;
}

static uintptr_t seal_of(const struct pool *pool, const char *object, const char *later,
                         enum state state)
{
    uintptr_t mixed = (uintptr_t)pool ^ (uintptr_t)object ^ (uintptr_t)later;
    return mixed * (uintptr_t)UINT64_C(0x9E3779B97F4A7C15) + state;
}

GUARD_MAY_LOOK static void tag_write(const struct pool *pool, char *object, char *later,
                                     enum state state)
{
    struct tag *tag = tag_of(pool, object);
    tag->seal = seal_of(pool, object, later, state);
    tag->later = later;
}

GUARD_MAY_LOOK static bool tag_says(const struct pool *pool, char *object, enum state state)
{
    const struct tag *tag = tag_of(pool, object);
    return tag->seal == seal_of(pool, object, tag->later, state);
}

/* Returns the next object on the list of idle objects. The caller has verified the tag of
 * `object`. */
GUARD_MAY_LOOK static char *idle_after(const struct pool *pool, char *object)
{
    return tag_of(pool, object)->later;
}

static void verify_untouched(const struct pool *pool, const char *from, const char *end)
{
    const void *disturbed = guard_disturbed(pool->guard, from, (size_t)(end - from));
    if (disturbed != NULL)
        complain(pool, "an object was written to after it was given back,", disturbed);
}

/* Verifies that the tag was not written to. Its link then leads to an idle object. */
static void verify_tag(const struct pool *pool, char *object)
{
    if (!tag_says(pool, object, IDLE))
        complain(pool, "an object was written to after it was given back,", tag_of(pool, object));
}

static void verify_idle(const struct pool *pool, char *object)
{
    verify_untouched(pool, object, (const char *)tag_of(pool, object));
    verify_tag(pool, object);
}

/* Verifies memory from which no object was cut since the last reset. */
static void verify_uncut(const struct pool *pool)
{
    if (pool->current != NULL)
        verify_untouched(pool, pool->next, pool->current->end);
    const struct slab *slab = pool->current == NULL ? pool->first : pool->current->later;
    for (; slab != NULL; slab = slab->later)
        verify_untouched(pool, slab->start, slab->end);
}

static void *take_watched(struct pool *pool)
{
    char *object = pool->oldest;
    if (object != NULL) {
        verify_idle(pool, object);
        pool->oldest = idle_after(pool, object);
        if (pool->oldest == NULL)
            pool->newest = NULL;
    } else {
        size_t count = 1;
        object = cut(pool, &count);
        if (object == NULL)
            return NULL;
        verify_untouched(pool, object, object + pool->stride_bytes);
    }
    guard_cover(pool->guard, object, pool->stride_bytes);
    guard_uncover(pool->guard, object, pool->object_bytes);
    tag_write(pool, object, NULL, IN_USE);
    return object;
}

static void put_watched(struct pool *pool, char *object)
{
    if (tag_says(pool, object, IDLE))
        complain(pool, "an object was given back twice,", object);
    if (!tag_says(pool, object, IN_USE))
        complain(pool,
                 "an object was given back that is not of this pool, or was written past its end,",
                 object);
    const char *end = object + pool->object_bytes;
    if (guard_disturbed(pool->guard, end, (size_t)((const char *)tag_of(pool, object) - end)) !=
        NULL)
        complain(pool, "an object was written past its end,", object);
    guard_cover(pool->guard, object, pool->stride_bytes);
    tag_write(pool, object, NULL, IDLE);
    if (pool->newest == NULL) {
        pool->oldest = object;
    } else {
        /* The tag of the object that was freed before `object` is about to be sealed anew. The new
         * seal would hide a write to the tag, so the tag is verified now. */
        verify_tag(pool, pool->newest);
        tag_write(pool, pool->newest, object, IDLE);
    }
    pool->newest = object;
}

/* --- the interface ---------------------------------------------------------------------------- */

extern inline void *cairn_pool_alloc(struct cairn_pool *pool);
extern inline void cairn_pool_free(struct cairn_pool *pool, void *object);

void *cairn_pool_alloc_slow(struct cairn_pool *face)
{
    struct pool *pool = (struct pool *)face;
    enter(pool);
    void *object = pool->guard == GUARD_NONE ? take(pool) : take_watched(pool);
    if (object != NULL)
        pool->face.used_count++;
    leave(pool);
    return object;
}

void cairn_pool_free_slow(struct cairn_pool *face, void *object)
{
    struct pool *pool = (struct pool *)face;
    if (object == NULL)
        return;
    enter(pool);
    if (pool->guard == GUARD_NONE)
        put(pool, object);
    else
        put_watched(pool, object);
    pool->face.used_count--;
    leave(pool);
}

void cairn_pool_reset(struct cairn_pool *face)
{
    struct pool *pool = (struct pool *)face;
    if (pool->guard != GUARD_NONE)
        cairn_pool_check(face);
    enter(pool);
    *idle_list(pool) = NULL;
    pool->oldest = pool->newest = NULL;
    pool->current = NULL; /* slabs are used again from the first one on */
    for (struct slab *slab = pool->first; slab != NULL; slab = slab->later)
        guard_cover(pool->guard, slab->start, (size_t)(slab->end - slab->start));
    pool->face.used_count = 0;
    pool->cut_count = 0;
    leave(pool);
}

struct cairn_pool *cairn_pool_create_with(const struct cairn_pool_options *options)
{
    size_t size = options->object_bytes;
    size_t alignment = options->alignment;
    if (alignment == 0)
        alignment = min(size & -size, CHUNK_ALIGNMENT);
    if (size == 0 || size > PTRDIFF_MAX || (alignment & (alignment - 1)) != 0)
        return NULL;

    struct pool draft = {
        .arena = options->arena,
        .owns_arena = options->arena == NULL,
        .shared = options->shared,
        .guard = guard_choose(options->checked == CAIRN_ARENA_CHECKED_ON,
                              options->checked == CAIRN_ARENA_CHECKED_AUTO),
        .object_bytes = size,
        .alignment = max(alignment, _Alignof(struct cairn_pool_slot)),
    };
    size_t tag = draft.guard == GUARD_NONE ? 0 : sizeof(struct tag);
    size_t least = max(size, sizeof(struct cairn_pool_slot));
    draft.stride_bytes =
        chunk_round_up(chunk_round_up(least, sizeof(void *)) + tag, draft.alignment);
    if (draft.stride_bytes < size)
        return NULL;
    draft.face.direct = !draft.shared && draft.guard == GUARD_NONE;

    if (draft.owns_arena)
        draft.arena =
            cairn_arena_create_with(&(struct cairn_arena_options){.checked = options->checked});
    struct pool *pool = draft.arena == NULL ? NULL : cairn_arena_alloc(draft.arena, sizeof *pool);
    if (pool == NULL) {
        if (draft.owns_arena)
            cairn_arena_destroy(draft.arena);
        return NULL;
    }
    *pool = draft;
    pthread_mutex_init(&pool->lock, NULL); /* cannot fail: default attributes */
    return &pool->face;
}

struct cairn_pool *cairn_pool_create(size_t object_bytes, size_t alignment)
{
    return cairn_pool_create_with(
        &(struct cairn_pool_options){.object_bytes = object_bytes, .alignment = alignment});
}

void cairn_pool_destroy(struct cairn_pool *face)
{
    struct pool *pool = (struct pool *)face;
    if (pool == NULL)
        return;
    if (pool->guard != GUARD_NONE)
        cairn_pool_check(face);
    pthread_mutex_destroy(&pool->lock);
    if (pool->owns_arena)
        cairn_arena_destroy(pool->arena);
}

struct cairn_pool_stats cairn_pool_statistics(struct cairn_pool *face)
{
    struct pool *pool = (struct pool *)face;
    enter(pool);
    struct cairn_pool_stats statistics = {
        .object_bytes = pool->stride_bytes,
        .used_count = pool->face.used_count,
        .high_water_count = pool->high_water_count,
        .reserved_bytes = pool->reserved_bytes,
    };
    leave(pool);
    return statistics;
}

static bool is_cut_object(const struct pool *pool, const char *object)
{
    if (pool->current == NULL)
        return false;
    const struct slab *slab = pool->first;
    while (slab != pool->current && (object < slab->start || object >= slab->end))
        slab = slab->later;
    const char *end = slab == pool->current ? pool->next : slab->end;
    return object >= slab->start && object < end &&
           (size_t)(object - slab->start) % pool->stride_bytes == 0;
}

/* first_idle() and next_idle() walk the idle objects, on the list of a watched pool or of a pool
 * that is not watched. */
static char *first_idle(struct pool *pool)
{
    return pool->guard == GUARD_NONE ? (char *)*idle_list(pool) : pool->oldest;
}

static char *next_idle(const struct pool *pool, char *object)
{
    return pool->guard == GUARD_NONE ? (char *)((struct cairn_pool_slot *)object)->next
                                     : idle_after(pool, object);
}

void cairn_pool_check(struct cairn_pool *face)
{
#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            complain(pool, "not true: " #condition, pool);                                         \
    } while (0)
    struct pool *pool = (struct pool *)face;
    enter(pool);
    HOLDS(pool->face.direct == (!pool->shared && pool->guard == GUARD_NONE));
    HOLDS(pool->face.direct || pool->face.free == NULL);
    size_t idle_count = 0;
    for (char *object = first_idle(pool); object != NULL; object = next_idle(pool, object)) {
        HOLDS(is_cut_object(pool, object));
        HOLDS(++idle_count <= pool->cut_count);
        if (pool->guard != GUARD_NONE) {
            verify_idle(pool, object);
            HOLDS((object == pool->newest) == (idle_after(pool, object) == NULL));
        }
    }
    verify_uncut(pool);
    HOLDS(idle_count + pool->face.used_count == pool->cut_count);
    HOLDS(pool->cut_count <= pool->high_water_count);
    leave(pool);
#undef HOLDS
}
