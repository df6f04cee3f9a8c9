#include "hardened/hardened.h"

#include "alloc/block_map.h"
#include "alloc/guarded_block.h"
#include "alloc/large_guard.h"
#include "alloc/quarantine.h"
#include "alloc/shared_heap.h"
#include "os/os.h"

#include <string.h>

enum { SMALL_MAX = SIZE_CLASS_BYTES_MAX - HARDENING_ZONE_BYTES };

static bool has_heap(void)
{
    return thread_has_heap();
}

/* Returns the bytes that must be allocated for a small block of `size` bytes. The smallest class is
 * not used: the link and the key of a free block would lie where its canary is. */
static inline size_t small_room(size_t size)
{
    return size + (size == 0) + HARDENING_ZONE_BYTES;
}

#define FILL_WORD (UINT64_MAX / 0xff * HARDENING_FILL)

/* Fills the word behind the end of a request. A write beyond the end changes this word first. */
static inline void fill(char *end)
{
    *(hardening_word *)end = FILL_WORD;
}

/* Returns whether the word that fill() wrote behind the end of a request is unchanged. */
static inline bool is_filled(const char *end)
{
    return *(const hardening_word *)end == FILL_WORD;
}
_Static_assert(HARDENING_ZONE_BYTES - CANARY_BYTES >= sizeof(hardening_word),
               "the word lies before the canary");

/* --- handing out ------------------------------------------------------------------------------ */

/* Called if no free block begins at `block`. Returns a block of emergency.h; for anything else,
 * ends the program. */
static __attribute__((noinline, cold)) void *issue_other(void *block)
{
    if (emergency_owns(block))
        return block;
    slab_misused("a free list was overwritten, and leads to no free block", block);
}

static _Noreturn __attribute__((noinline, cold)) void was_written(const void *block, bool at_end)
{
    slab_misused(at_end ? "the end of a free block was overwritten"
                        : "a block was written to after it was freed",
                 block);
}

/* Turns a block of a class, which a slab has handed out, into a live block of `size` bytes. Its
 * address may be anything, because it comes from a list that the program may have overwritten. */
static inline __attribute__((always_inline)) void *issue_small(struct block *block, unsigned class,
                                                               size_t size)
{
    if (UNLIKELY(!region_has(region_index(block)) || (uintptr_t)block % REGION_MAP_UNIT != 0))
        return issue_other(block);
    _Atomic uint8_t *state = block_map_at(block);
    unsigned before = atomic_load_explicit(state, memory_order_relaxed);
    if (UNLIKELY(before != BLOCK_NEW && before != BLOCK_FREE))
        return issue_other(block);
    size_t bytes = size_class_bytes(class);
    char *start = (char *)block;
    char *end = start + bytes;
    block->next = NULL; /* heap_pop() has cleared the key */
    if (UNLIKELY(!hardening_is_zero(start + sizeof *block, bytes - sizeof *block - CANARY_BYTES)))
        was_written(block, false);
    uint64_t canary = canary_at(end);
    if (UNLIKELY(canary_slack_of(end, canary) != CANARY_FREE))
        was_written(block, true);
    fill(start + size);
    canary_write_of(end, canary, bytes - CANARY_BYTES - size);
    atomic_store_explicit(state, BLOCK_LIVE, memory_order_relaxed);
    return block;
}

/* Slow path of hardened_malloc() for a small block. */
static __attribute__((noinline)) void *malloc_small(unsigned class, size_t size)
{
    void *block = alloc_malloc_slow(small_room(size), NULL);
    return block == NULL ? NULL : issue_small(block, class, size);
}

/* Like issue_small(), for rarer calls. */
static __attribute__((noinline)) void *issue_aligned(struct block *block, unsigned class,
                                                     size_t size)
{
    return issue_small(block, class, size);
}

/* Returns the budget of this thread, or NULL if it has no heap. */
static struct large_budget *budget(void)
{
    return has_heap() ? &quarantine_of(thread_heap)->large_budget : NULL;
}

/* Turns a large block into a live block of `size` bytes. The caller sets `*zero` to whether the
 * memory at `p` is known to read as zero. The function sets `*zero` to whether the returned block
 * reads as zero. */
static void *issue_large(void *p, size_t size, size_t alignment, bool *zero)
{
    if (UNLIKELY(!region_has(region_index(p)))) /* a block of emergency.h */
        return p;
    struct slab *slab = slab_at(region_index(p));
    void *block = large_guard_set(slab, size, alignment, zero, budget());
    block_map_set(block, BLOCK_LIVE);
    return block;
}

static void *allocate_large(size_t size, size_t alignment, bool *zero, const void *caller)
{
    void *p = alloc_large(large_guard_room(size, alignment), alignment, zero, caller);
    return p == NULL ? NULL : issue_large(p, size, alignment, zero);
}

static __attribute__((noinline)) void *malloc_large(size_t size, const void *caller)
{
    bool zero;
    return allocate_large(size, 1, &zero, caller);
}

/* Counts a call of malloc. Returns a guarded block (guarded_block.h), or NULL if this call must
 * return an ordinary block. */
static __attribute__((noinline)) void *malloc_guarded(unsigned class, size_t size)
{
    guarded_count(class, 1);
    return guarded_next(class, size);
}

void *hardened_malloc(size_t size, const void *caller)
{
    hardening_caller = caller;
    if (UNLIKELY(size > SMALL_MAX))
        return malloc_large(size, caller);
    unsigned class = size_class(small_room(size));
    if (guarded_is_on()) {
        void *guarded = malloc_guarded(class, size);
        if (guarded != NULL)
            return guarded;
    }
    struct heap *heap = thread_heap;
    struct block *block = heap->list[class];
    if (UNLIKELY(block == NULL || !slab_is_marked(block)))
        return malloc_small(class, size);
    return issue_small(heap_pop(heap, class, block), class, size);
}

void *hardened_calloc(size_t count, size_t size, const void *caller)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    if (LIKELY(bytes <= SMALL_MAX))
        return hardened_malloc(bytes, caller);
    hardening_caller = caller;
    bool zero;
    void *block = allocate_large(bytes, 1, &zero, caller);
    if (block != NULL && !zero)
        memset(block, 0, bytes);
    return block;
}

void *hardened_aligned(size_t alignment, size_t size, const void *caller)
{
    if (alignment <= 16)
        return hardened_malloc(size, caller);
    hardening_caller = caller;
    unsigned class =
        size <= SMALL_MAX ? size_class_aligned(small_room(size), alignment) : SIZE_CLASS_COUNT;
    if (class == SIZE_CLASS_COUNT) {
        bool zero;
        return allocate_large(size, alignment, &zero, caller);
    }
    if (guarded_is_on()) {
        void *guarded = malloc_guarded(class, (size + alignment - 1) & ~(alignment - 1));
        if (guarded != NULL)
            return guarded;
    }
    void *block = alloc_aligned_slow(alignment, small_room(size), caller);
    return block == NULL ? NULL : issue_aligned(block, class, size);
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
    if (class < SIZE_CLASS_COUNT)
        return issue_aligned(p, class, size);
    void *block = issue_large(p, size, alignment, &zero);
    if (!zero)
        memset(block, 0, size);
    return block;
}

/* --- checking --------------------------------------------------------------------------------- */

/* Ends the program: `p`, in state `state`, is not a live block. */
static _Noreturn __attribute__((noinline, cold)) void not_live(const void *p,
                                                               enum block_state state)
{
    if (state == BLOCK_QUARANTINED || state == BLOCK_FREE)
        slab_misused("a block is used that was freed before", p);
    if (state == BLOCK_NEW)
        slab_misused("a block is used that was never handed out", p);
    slab_misused("a pointer that is not the start of a block", p);
}

/* Returns the record of the run of a live block. Returns NULL if `p` is a block of emergency.h or
 * guarded_block.h. Ends the program if `p` is not a live block. If `take` is true, the block is no
 * longer live afterwards. */
static inline struct slab *run_of_live(const void *p, bool take)
{
    size_t index = region_index(p);
    if (UNLIKELY(!region_has(index))) {
        if (guarded_has(p) || emergency_owns(p))
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

static _Noreturn __attribute__((noinline, cold)) void was_exceeded(const void *p, bool before)
{
    slab_misused(
        before ? "a write before the start of a block, or beyond the end of the block before it"
               : "a write beyond the end of a block",
        p);
}

/* Returns the requested bytes of a small live block of `bytes` bytes. Ends the program if something
 * was written beyond the block. `canary` is canary_at() of its end. */
static inline size_t check_end(const char *start, size_t bytes, uint64_t canary)
{
    uint64_t slack = canary_slack_of(start + bytes, canary);
    const char *end = start + bytes - CANARY_BYTES;
    if (UNLIKELY(slack - 8 > bytes - CANARY_BYTES - 8 || !is_filled(end - slack)))
        was_exceeded(start, false);
    return bytes - CANARY_BYTES - (size_t)slack;
}

/* Ends the program if the canary of the block before a small block was overwritten. */
static inline void check_before(const struct slab *slab, const char *start)
{
    bool is_first = UNLIKELY((uintptr_t)start % SLICE_BYTES == 0) && start == slab_start(slab);
    if (LIKELY(!is_first) && UNLIKELY(canary_slack(start) > CANARY_FREE))
        was_exceeded(start, true);
}

/* Returns the requested bytes of a live block, after all checks. */
static inline size_t check(const struct slab *slab, const void *p)
{
    if (UNLIKELY(slab->kind == RUN_LARGE)) {
        if (UNLIKELY(!large_guard_is_intact(slab)))
            was_exceeded(p, false);
        return large_guard_size(slab);
    }
    check_before(slab, p);
    size_t bytes = size_class_bytes(slab->class);
    return check_end(p, bytes, canary_at((const char *)p + bytes));
}

size_t hardened_usable_size(const void *p, const void *caller)
{
    if (p == NULL)
        return 0;
    hardening_caller = caller;
    const struct slab *slab = run_of_live(p, false);
    return slab != NULL ? check(slab, p) : guarded_or_emergency_bytes(p);
}

/* --- freeing ---------------------------------------------------------------------------------- */

/* Frees a large block that is no longer live and was checked. */
static __attribute__((noinline)) void free_large(struct slab *slab)
{
    large_guard_seal(slab, budget());
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
    return owner != thread_heap && atomic_load_explicit(&owner->shared, memory_order_relaxed);
}

/* Checks a small block that is no longer live, and makes it a free one. */
static inline __attribute__((always_inline)) void end_small(const struct slab *slab, char *start)
{
    size_t bytes = size_class_bytes(slab->class);
    uint64_t canary = canary_at(start + bytes);
    check_before(slab, start);
    check_end(start, bytes, canary);
    /* The canary is never cleared, because another thread that frees the block behind may read
     * it. */
    hardening_clear(start, bytes - CANARY_BYTES);
    canary_write_of(start + bytes, canary, CANARY_FREE);
}

static __attribute__((noinline)) void free_small_of_other(struct slab *slab, struct block *block)
{
    end_small(slab, (char *)block);
    /* A block that cannot be freed stays where it is, and is not handed out again. */
    if (UNLIKELY(lock_is_unsafe()) && !thread_adopt_child())
        return;
    const struct heap *owner = atomic_load_explicit(&slab->owner, memory_order_relaxed);
    if ((has_heap() || thread_birth() != NULL) && !may_be_destroyed(owner))
        quarantine_put(thread_heap, block, slab->class);
    else
        quarantine_release(thread_heap, slab, block);
}

/* Frees `p`, which is NULL or a block of guarded_block.h or emergency.h. Ends the program if `p` is
 * none of these. */
static __attribute__((noinline)) void free_foreign(void *p)
{
    if (p != NULL && run_of_live(p, true) == NULL)
        guarded_or_emergency_free(p);
}

/* Slow path of hardened_free() for large blocks and blocks of other heaps. `slab` is the record of
 * the run that `p` lies in. */
static __attribute__((noinline)) void free_other(struct slab *slab, void *p)
{
    enum block_state state = block_map_take(p);
    if (UNLIKELY(state != BLOCK_LIVE))
        not_live(p, state);
    if (slab->kind != RUN_LARGE) {
        free_small_of_other(slab, p);
        return;
    }
    check(slab, p);
    /* A block that cannot be freed stays where it is, and is not handed out again. */
    if (LIKELY(!lock_is_unsafe() || thread_adopt_child()))
        free_large(slab);
}

void hardened_free(void *p, const void *caller)
{
    hardening_caller = caller;
    size_t index = region_index(p);
    if (UNLIKELY(!region_has(index) || (uintptr_t)p % REGION_MAP_UNIT != 0)) {
        free_foreign(p);
        return;
    }
    struct slab *slab = slab_at(index);
    if (UNLIKELY(slab->kind == RUN_TAIL))
        slab -= slab->back;
    struct heap *heap = thread_heap;
    if (UNLIKELY(atomic_load_explicit(&slab->owner, memory_order_relaxed) != heap)) {
        free_other(slab, p);
        return;
    }
    enum block_state state = block_map_take_own(p);
    if (UNLIKELY(state != BLOCK_LIVE))
        not_live(p, state);
    end_small(slab, p);
    quarantine_put(heap, p, slab->class);
}

/* --- resizing --------------------------------------------------------------------------------- */

/* Changes the requested size of a small block of `bytes` bytes from `have` to `size`. */
static void resize_small(char *start, size_t bytes, size_t have, size_t size)
{
    size_t room = bytes - CANARY_BYTES;
    if (size > have)
        memset(start + have, 0, size - have);
    fill(start + size);
    canary_write(start + bytes, room - size);
}

/* Resizes a large block in place. */
static bool resize_large(struct slab *slab, size_t have, size_t size)
{
    size_t alignment = large_guard_alignment(slab);
    size_t room = large_guard_room(size, alignment);
    if (large_slices(room) == 0) /* rounding up overflows */
        return false;
    if (large_slices(room) != slab->slices)
        large_guard_open(slab);
    bool done = large_resize(slab, room); /* never false if the block shrinks */
    bool zero = true;                     /* else large_guard_set() could clear the block */
    large_guard_set(slab, done ? size : have, alignment, &zero, budget());
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
    large_guard_open(slab);
    block_map_set(large_guard_block(slab), BLOCK_FREE);
    void *there = large_move(slab, large_guard_room(size, alignment));
    struct slab *now = there != NULL ? slab_at(region_index(there)) : slab;
    bool zero = true; /* else large_guard_set() could clear the block */
    void *block = large_guard_set(now, there != NULL ? size : have, alignment, &zero, budget());
    block_map_set(block, BLOCK_LIVE);
    return there != NULL ? block : NULL;
}

void *hardened_realloc(void *p, size_t size, const void *caller)
{
    if (p == NULL)
        return hardened_malloc(size, caller);
    hardening_caller = caller;
    struct slab *slab = run_of_live(p, false);
    size_t have = slab != NULL ? check(slab, p) : guarded_or_emergency_bytes(p);
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
