#include "hardened/hardened.h"

#include "alloc/block_map.h"
#include "alloc/emergency.h"
#include "alloc/large_guard.h"
#include "alloc/quarantine.h"
#include "alloc/shared_heap.h"
#include "os/os.h"

#include <string.h>

enum { SMALL_MAX = SIZE_CLASS_BYTES_MAX - HARDENING_ZONE_BYTES };

static bool has_heap(void)
{
    return thread_heap != &heap_none && thread_heap != &heap_gone;
}

/* Returns the bytes that must be allocated for a small block of `size` bytes. The smallest class is
 * not used: the link and the key of a free block would lie where its canary is. */
static inline size_t small_room(size_t size)
{
    return (size > 0 ? size : 1) + HARDENING_ZONE_BYTES;
}

/* Two words, which the processor reads and writes at once. The address and the size of each block
 * are multiples of 16 bytes. */
typedef uint64_t pair __attribute__((vector_size(16)));

enum { PAIRS_MOST = 32 }; /* more are cleared by memset() */

static inline void clear_pairs(void *start, size_t bytes)
{
    pair *at = start;
    if (bytes > PAIRS_MOST * sizeof(pair)) {
        memset(start, 0, bytes);
        return;
    }
    for (size_t i = 0; i < bytes / sizeof(pair); i++)
        at[i] = (pair){0};
}

/* Returns whether `bytes` bytes, a multiple of 16, read as zero. */
static inline bool is_zero(const void *start, size_t bytes)
{
    const pair *at = start;
    const pair *end = at + bytes / sizeof(pair);
    pair any = {0};
    for (; end - at >= 8; at += 8)
        any |= at[0] | at[1] | at[2] | at[3] | at[4] | at[5] | at[6] | at[7];
    for (; at < end; at++)
        any |= *at;
    return (any[0] | any[1]) == 0;
}

#define FILL_WORD (UINT64_MAX / 0xff * HARDENING_FILL)

/* Fills the bytes from `size` to the canary at `room`, which read as zero. */
static inline void fill(char *start, size_t size, size_t room)
{
    uint64_t *words = (uint64_t *)start;
    size_t at = size / 8;
    if (at >= room / 8)
        return;
    words[at] |= FILL_WORD << size % 8 * 8; /* the first bytes in memory are the low ones */
    while (++at < room / 8)
        words[at] = FILL_WORD;
}

/* Returns whether the bytes that fill() wrote are unchanged. */
static inline bool is_filled(const char *start, size_t size, size_t room)
{
    const uint64_t *words = (const uint64_t *)start;
    size_t at = size / 8;
    if (at >= room / 8)
        return true;
    uint64_t other = (words[at] ^ FILL_WORD) >> size % 8 * 8;
    while (++at < room / 8)
        other |= words[at] ^ FILL_WORD;
    return other == 0;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fill() and is_filled() shift words");

/* Returns whether a free block of a slab begins at an address that may be anything, because it
 * comes from a list that the program may have overwritten. */
static inline bool is_free(const void *p)
{
    if (UNLIKELY(!region_has(region_index(p)) || (uintptr_t)p % REGION_MAP_UNIT != 0))
        return false;
    enum block_state state = block_map_state(p);
    return state == BLOCK_NEW || state == BLOCK_FREE;
}

/* --- handing out ------------------------------------------------------------------------------ */

/* Turns a block of `bytes` bytes, which a slab has handed out, into a live block of `size`. */
static inline void *issue_small(struct block *block, size_t bytes, size_t size)
{
    char *canary = (char *)block + bytes - CANARY_BYTES;
    if (UNLIKELY(!is_free(block))) {
        if (emergency_owns(block))
            return block;
        slab_misused("a free list was overwritten, and leads to something else", block);
    }
    block->next = NULL; /* heap_pop() has cleared the key */
    if (UNLIKELY(!is_zero(block, bytes - sizeof(pair)) || *(uint64_t *)(canary - 8) != 0))
        slab_misused("a block was written to after it was freed", block);
    if (UNLIKELY(canary_slack(canary + CANARY_BYTES) != CANARY_FREE))
        slab_misused("the end of a free block was overwritten", block);
    size_t slack = bytes - CANARY_BYTES - size;
    fill((char *)block, size, bytes - CANARY_BYTES);
    canary_write(canary + CANARY_BYTES, slack);
    block_map_set(block, BLOCK_LIVE);
    return block;
}

/* Turns a large block into a live block of `size` bytes. `zero` says that it is known to read as
 * zero. */
static void *issue_large(void *p, size_t size, size_t alignment, bool zero)
{
    if (UNLIKELY(!region_has(region_index(p)))) /* of emergency.h */
        return p;
    struct slab *slab = slab_at(region_index(p));
    void *block = large_guard_set(slab, size, alignment);
    if (UNLIKELY(!zero && !is_zero(block, size & ~(size_t)15)))
        slab_misused("a block was written to after it was freed", block);
    block_map_set(block, BLOCK_LIVE);
    return block;
}

static void *allocate_large(size_t size, size_t alignment, const void *caller)
{
    bool zero;
    void *p = alloc_large(large_guard_room(size, alignment), alignment, &zero, caller);
    return p == NULL ? NULL : issue_large(p, size, alignment, zero);
}

void *hardened_malloc(size_t size, const void *caller)
{
    hardening_caller = caller;
    if (UNLIKELY(size > SMALL_MAX))
        return allocate_large(size, 1, caller);
    void *block = alloc_malloc(small_room(size));
    if (UNLIKELY(block == NULL))
        return NULL;
    return issue_small(block, size_class_bytes(size_class(small_room(size))), size);
}

void *hardened_calloc(size_t count, size_t size, const void *caller)
{
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? NULL : hardened_malloc(bytes, caller);
}

void *hardened_aligned(size_t alignment, size_t size, const void *caller)
{
    if (alignment <= 16)
        return hardened_malloc(size, caller);
    hardening_caller = caller;
    unsigned class =
        size <= SMALL_MAX ? size_class_aligned(small_room(size), alignment) : SIZE_CLASS_COUNT;
    if (class == SIZE_CLASS_COUNT)
        return allocate_large(size, alignment, caller);
    void *block = alloc_aligned_slow(alignment, small_room(size), caller);
    return block == NULL ? NULL : issue_small(block, size_class_bytes(class), size);
}

void *hardened_heap_allocate(struct heap *heap, size_t size, size_t alignment, const void *caller)
{
    bool zero;
    hardening_caller = caller;
    size_t room = size <= SMALL_MAX ? small_room(size) : large_guard_room(size, alignment);
    unsigned class = size_class_aligned(room, alignment);
    if (class == SIZE_CLASS_COUNT)
        room = large_guard_room(size, alignment);
    void *p = shared_heap_allocate(heap, room, alignment, &zero);
    if (p == NULL)
        return NULL;
    return class < SIZE_CLASS_COUNT ? issue_small(p, size_class_bytes(class), size)
                                    : issue_large(p, size, alignment, zero);
}

/* --- checking --------------------------------------------------------------------------------- */

/* Ends the program: `p`, in state `state`, is no live block. */
static _Noreturn __attribute__((noinline, cold)) void not_live(const void *p,
                                                               enum block_state state)
{
    if (state == BLOCK_QUARANTINED || state == BLOCK_FREE)
        slab_misused("a block is used that was freed before", p);
    if (state == BLOCK_NEW)
        slab_misused("a block is used that was never handed out", p);
    slab_misused("a pointer that is not the start of a block", p);
}

/* Returns the record of the run of a live block. Returns NULL if `p` is a block of emergency.h.
 * Ends the program if `p` is no live block. If `take` is true, the block is live no more. */
static inline struct slab *run_of_live(const void *p, bool take)
{
    size_t index = region_index(p);
    if (UNLIKELY(!region_has(index))) {
        if (emergency_owns(p))
            return NULL;
        slab_misused("a pointer that this allocator never handed out", p);
    }
    if (UNLIKELY((uintptr_t)p % REGION_MAP_UNIT != 0))
        not_live(p, BLOCK_NONE);
    enum block_state state = take ? block_map_take(p) : block_map_state(p);
    if (UNLIKELY(state != BLOCK_LIVE))
        not_live(p, state);
    return slab_of(p);
}

/* Returns the requested bytes of a small live block of `bytes` bytes. Ends the program if something
 * was written beyond the block. */
static inline size_t check_end(const char *start, size_t bytes)
{
    const char *end = start + bytes;
    uint64_t slack = canary_slack(end);
    if (UNLIKELY(slack > bytes - CANARY_BYTES))
        slab_misused("a write beyond the end of a block", start);
    size_t size = bytes - CANARY_BYTES - (size_t)slack;
    if (UNLIKELY(!is_filled(start, size, bytes - CANARY_BYTES)))
        slab_misused("a write beyond the end of a block", start);
    return size;
}

/* Ends the program if the canary of the block before a small block was overwritten. */
static inline void check_before(const struct slab *slab, const char *start)
{
    if (LIKELY(start != slab_start(slab)) && UNLIKELY(canary_slack(start) > CANARY_FREE))
        slab_misused(
            "a write before the start of a block, or beyond the end of the block before it", start);
}

/* Returns the requested bytes of a live block, after all checks. */
static inline size_t check(const struct slab *slab, const void *p)
{
    if (UNLIKELY(slab->kind == RUN_LARGE)) {
        if (UNLIKELY(!large_guard_holds(slab)))
            slab_misused("a write beyond the end of a block", p);
        return large_guard_size(slab);
    }
    check_before(slab, p);
    return check_end(p, size_class_bytes(slab->class));
}

size_t hardened_usable_size(const void *p, const void *caller)
{
    if (p == NULL)
        return 0;
    hardening_caller = caller;
    const struct slab *slab = run_of_live(p, false);
    return slab != NULL ? check(slab, p) : emergency_bytes(p);
}

/* --- freeing ---------------------------------------------------------------------------------- */

/* Frees a large block, which is live no more and was checked. */
static __attribute__((noinline)) void free_large(struct slab *slab)
{
    large_guard_remove(slab);
    large_guard_wipe(slab);
    const struct heap *keeper = atomic_load_explicit(&slab->owner, memory_order_acquire);
    if (LIKELY(keeper == NULL && (has_heap() || thread_birth() != NULL)) &&
        quarantine_put_large(thread_heap, slab))
        return;
    block_map_set(large_guard_block(slab), BLOCK_FREE);
    alloc_free(slab_start(slab));
}

/* Returns whether a block of this heap could be freed by heap_destroy() while it is in quarantine.
 * Such a block must not stay there. */
static inline bool may_be_destroyed(const struct heap *owner)
{
    return owner != thread_heap && __atomic_load_n(&owner->shared, __ATOMIC_RELAXED);
}

static inline void free_small(struct slab *slab, struct block *block, size_t bytes)
{
    clear_pairs(block, bytes);
    canary_write((char *)block + bytes, CANARY_FREE);
    const struct heap *owner = atomic_load_explicit(&slab->owner, memory_order_relaxed);
    bool keep = LIKELY(has_heap()) || thread_birth() != NULL;
    if (LIKELY(keep && !may_be_destroyed(owner)))
        quarantine_put(thread_heap, slab, block);
    else
        quarantine_release(thread_heap, slab, block);
}

void hardened_free(void *p, const void *caller)
{
    if (UNLIKELY(p == NULL))
        return;
    hardening_caller = caller;
    struct slab *slab = run_of_live(p, true);
    if (UNLIKELY(slab == NULL)) {
        emergency_free(p);
        return;
    }
    check(slab, p);
    if (UNLIKELY(lock_is_unsafe()) && !thread_adopt_child())
        return; /* the block is not handed out again */
    if (UNLIKELY(slab->kind == RUN_LARGE))
        free_large(slab);
    else
        free_small(slab, p, size_class_bytes(slab->class));
}

/* --- resizing --------------------------------------------------------------------------------- */

/* Changes the requested size of a small block of `bytes` bytes from `have` to `size`. */
static void resize_small(char *start, size_t bytes, size_t have, size_t size)
{
    size_t room = bytes - CANARY_BYTES;
    if (size > have)
        memset(start + have, 0, size - have);
    else
        memset(start + size, HARDENING_FILL, have - size);
    canary_write(start + bytes, room - size);
}

/* Resizes a large block in place. The slices that it gains read as zero, and those that it loses
 * are made to. */
static bool resize_large(struct slab *slab, size_t have, size_t size)
{
    size_t alignment = large_guard_alignment(slab);
    size_t room = large_guard_room(size, alignment);
    if (large_slices(room) == 0) /* rounding up overflows */
        return false;
    large_guard_remove(slab);
    if (size < have)
        memset((char *)large_guard_block(slab) + size, 0, have - size);
    bool done = large_resize(slab, room); /* true if the block shrinks */
    large_guard_set(slab, done ? size : have, alignment);
    return done;
}

static bool resize(struct slab *slab, void *p, size_t have, size_t size)
{
    if (slab->kind == RUN_LARGE)
        return size > SMALL_MAX && !lock_is_unsafe() && resize_large(slab, have, size);
    size_t bytes = size_class_bytes(slab->class);
    size_t room = size <= SMALL_MAX ? small_room(size) : SIZE_MAX;
    if (room > bytes || (room <= bytes / 2 && bytes > 32))
        return false;
    resize_small(p, bytes, have, size);
    return true;
}

bool hardened_resize(void *p, size_t size, const void *caller)
{
    hardening_caller = caller;
    struct slab *slab = run_of_live(p, false);
    return slab != NULL && resize(slab, p, check(slab, p), size);
}

/* Moves the pages of a large block that grows (large_move()). Returns NULL if that is impossible;
 * the block is then unchanged. */
static void *move_large(struct slab *slab, size_t have, size_t size)
{
    const struct heap *owner = atomic_load_explicit(&slab->owner, memory_order_relaxed);
    if (size <= have || (owner != NULL && !site_keeps(owner)))
        return NULL;
    size_t alignment = large_guard_alignment(slab);
    large_guard_remove(slab);
    block_map_set(large_guard_block(slab), BLOCK_FREE);
    void *there = large_move(slab, large_guard_room(size, alignment));
    struct slab *now = there != NULL ? slab_at(region_index(there)) : slab;
    void *block = large_guard_set(now, there != NULL ? size : have, alignment);
    block_map_set(block, BLOCK_LIVE);
    return there != NULL ? block : NULL;
}

void *hardened_realloc(void *p, size_t size, const void *caller)
{
    if (p == NULL)
        return hardened_malloc(size, caller);
    hardening_caller = caller;
    struct slab *slab = run_of_live(p, false);
    size_t have = slab != NULL ? check(slab, p) : emergency_bytes(p);
    if (slab != NULL && resize(slab, p, have, size))
        return p;
    bool may_move = slab != NULL && slab->kind == RUN_LARGE && !lock_is_unsafe();
    void *moved = may_move ? move_large(slab, have, size) : NULL;
    if (moved != NULL)
        return moved;
    moved = hardened_malloc(size, caller);
    if (moved == NULL)
        return size <= have ? p : NULL;
    memcpy(moved, p, size < have ? size : have);
    hardened_free(p, caller);
    return moved;
}
