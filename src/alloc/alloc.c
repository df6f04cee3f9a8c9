#include "alloc/alloc.h"

#include "alloc/background.h"
#include "alloc/big_cache.h"
#include "alloc/broken.h"
#include "alloc/detour.h"
#include "alloc/guarded_block.h"
#include "alloc/large.h"
#include "alloc/quarantine.h"
#include "alloc/run_cache_learning.h"
#include "alloc/site.h"

#include <string.h>

/* --- allocating ------------------------------------------------------------------------------- */

/* Returns true if this thread must take blocks from emergency.h, because it must not take locks. */
static inline bool is_emergency(void)
{
    return lock_is_unsafe() && !thread_adopt_child();
}

/* Called when an allocation found no memory, before its second and last attempt. Gives the kept
 * runs and the empty slabs of this thread back to the page heap. Also gives back every slab, of any
 * heap, whose live blocks are all posted (remote.h). After the call, the lists of this thread's
 * heap are empty. */
static __attribute__((noinline, cold)) void reclaim(void)
{
    if (CAIRN_HARDENED && thread_has_heap())
        quarantine_drain(thread_heap);
    if (thread_has_heap()) {
        struct heap *heap = thread_heap; /* heap_collect() may put it aside */
        heap_collect(heap);
        heap->trim.due = true; /* parked slabs now report no free */
        heap->trim.wait = 0;
    }
    heap_sweep();
}

static void *refill(struct heap *heap, unsigned class)
{
    lock_enter();
    void *block = heap_refill(heap, class);
    lock_leave();
    return block;
}

/* Takes a small block from the thread's heap. The caller has found the heap's list of this class
 * empty. Returns NULL if there is no memory. */
static void *allocate_small(struct heap *heap, unsigned class)
{
    void *block = refill(heap, class);
    if (UNLIKELY(block == NULL)) {
        reclaim();
        block = refill(heap, class);
    }
    return block;
}

/* Takes a large block from the page heap. Returns NULL if there is no memory. */
static void *allocate_new(size_t size, size_t alignment, bool *zero)
{
    if (UNLIKELY(run_cache_is_learnt()) && thread_has_heap())
        heap_missed(thread_heap);
    if (UNLIKELY(thread_heap->batched != 0))
        heap_post_batches(thread_heap);
    void *p = large_allocate(size, alignment, zero);
    if (UNLIKELY(p == NULL)) {
        reclaim();
        p = large_allocate(size, alignment, zero);
    }
    return p;
}

bool alloc_count_sites(void)
{
    return site_begin();
}

void alloc_keep_by_place(void)
{
    big_cache_begin();
    site_matters = true;
}

void alloc_guard(uint32_t every)
{
    guarded_begin(every);
    for (struct heap *heap = heap_first(); heap != NULL && guarded_is_on(); heap = heap->next) {
        for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++)
            heap->room[class] -= heap->warm >> class & 1 ? heap_hot(class) : 0;
        heap->warm = 0;
    }
}

/* Notes the place that allocated the large block `p` (big_cache.h). Marks the block with
 * site_keeper(), so that its free takes the slow path. */
static void note_place(void *p, uint32_t place)
{
    struct slab *slab = slab_at(region_index(p));
    slab->place = place;
    atomic_store_explicit(&slab->owner, site_keeper(slab), memory_order_release);
}

/* Counts the new large block `p` for the call site of `caller` (site.h), if sites are counted and
 * the block is the next sample. `hit` is true if the block lies in a run that the thread had kept.
 * Returns `p`, which may be NULL. */
static inline void *count_for_site(void *p, size_t size, const void *caller, bool hit)
{
    if (LIKELY(!site_is_counted()) || p == NULL)
        return p;
    struct site_turn *turn = thread_has_heap() ? &thread_heap->site_turn : NULL;
    if (turn != NULL && turn->left > 0)
        turn->left--;
    else
        site_take(slab_at(region_index(p)), large_slices(size), caller, hit, turn);
    return p;
}

/* Turns a run that the thread kept into a block of `size` bytes, and returns the block. Unlike
 * alloc_reuse_large(), does not check whether a site counts the block. Returns NULL if no kept run
 * fits. An aligned block only takes a run of its own length, or the one long run of run_cache.h,
 * because other runs gained nothing (docs/decisions/0008-runs-kept-by-length.md). */
static void *reuse_any(size_t size, size_t alignment)
{
    size_t slices = large_slices(size);
    struct heap *heap = thread_heap; /* or heap_none, heap_gone: without runs */
    if (slices - 1 >= RUN_CACHE_RUN_MAX)
        return alignment <= SLICE_BYTES ? heap_reuse_long(heap, size) : NULL;
    struct slab *run = NULL;
    uint32_t index = 0;
    if (UNLIKELY(alignment != 1)) {
        if (!CAIRN_HARDENED && alignment <= SLICE_BYTES)
            index = run_cache_take_equal(&heap->runs, (uint32_t)slices, &run);
        if (index == 0)
            return NULL;
    } else if ((index = run_cache_take(&heap->runs, (uint32_t)slices, &run)) == 0) {
        if (heap->runs.filled != 0)
            heap->runs.slack_shift = SLACK_QUARTER;
        return NULL;
    }
    atomic_store_explicit(&run->kind, RUN_LARGE, memory_order_release);
    return region_address(index);
}

/* Like reuse_any(), for runs that are kept by place. */
static void *reuse_by_place(size_t size, uint32_t place)
{
    if (!thread_has_heap())
        return NULL;
    lock_enter();
    void *p = heap_reuse_by_place(thread_heap, size, place);
    lock_leave();
    return p;
}

/* Does the work of alloc_large(). The size is possible, and the thread is not in a detour. */
static inline __attribute__((always_inline)) void *
allocate_large(size_t size, size_t alignment, bool *zero, const void *caller, const void *frame)
{
    if (is_emergency()) {
        *zero = true;
        return emergency_allocate(size, alignment);
    }
    bool by_place = big_cache_is_on();
    uint32_t place = 0;
    void *p = NULL;
    if (LIKELY(!by_place)) {
        p = reuse_any(size, alignment);
    } else if (alignment <= SLICE_BYTES) {
        place = big_cache_place(caller, frame);
        p = reuse_by_place(size, place);
    }
    bool hit = p != NULL;
    if (hit)
        *zero = false;
    else
        p = allocate_new(size, alignment, zero);
    background_look();
    if (UNLIKELY(by_place) && p != NULL)
        note_place(p, place);
    p = count_for_site(p, size, caller, hit);
    if (!hit)
        detour_look(thread_heap);
    return p;
}

/* Ends a detour, if there is one, and begins it again at the end. This function is not inlined, so
 * its frame lies at the same distance below every caller of alloc_large(). big_cache.h and site.h
 * tell callers apart by their stack depth, and rely on this distance. */
static __attribute__((noinline)) void *allocate_large_at_home(size_t size, size_t alignment,
                                                              bool *zero, const void *caller)
{
    bool was_away = thread_is_away();
    if (UNLIKELY(was_away))
        detour_end();
    void *p = allocate_large(size, alignment, zero, caller, __builtin_frame_address(0));
    if (UNLIKELY(was_away))
        detour_begin();
    return p;
}

void *alloc_large(size_t size, size_t alignment, bool *zero, const void *caller)
{
    /* Checked here, because otherwise the thread would give back all its free memory before the
     * request fails. */
    if (UNLIKELY(large_is_impossible(size) || large_is_impossible(alignment)))
        return NULL;
    return allocate_large_at_home(size, alignment, zero, caller);
}

/* Gives the blocks of a list that follow `last` back to their slab. All of them belong to the
 * current slab of the class. If `last` is NULL, gives all blocks of the list back. If the program
 * wrote to one of the blocks, all of them stay on the list, so that the check before a block is
 * handed out finds the write. */
static void shorten_list(struct heap *heap, unsigned class, struct block *last)
{
    struct block *first = last != NULL ? last->next : heap->list[class];
    uint32_t count = 0;
    struct block *end = NULL;
    for (struct block *next = first; next != NULL; next = next->next) {
        if (!slab_is_marked(next) || ++count > HEAP_CARVED_MOST)
            return;
        end = next;
    }
    if (count == 0)
        return;
    lock_enter();
    if (last != NULL)
        slab_mark(last, NULL);
    else
        heap->list[class] = NULL;
    heap->room[class] += (int32_t)count;
    slab_free_many(slab_of(first), first, end, count);
    lock_leave();
}

/* Counts calls of malloc for guarded_next(): `count` calls, at most one, and one for each block
 * that the list of the class has now, because the fast path will hand out these blocks without
 * counting. Before that, shortens the list, so that it counts at most `guarded_every` calls. */
static inline void count_list(struct heap *heap, unsigned class, uint32_t count)
{
    if (CAIRN_HARDENED || LIKELY(!guarded_is_on()))
        return;
    struct block *last = NULL;
    for (struct block *block = heap->list[class];
         count < guarded_every && block != NULL && slab_is_marked(block); block = block->next) {
        last = block;
        if (++count == HEAP_CARVED_MOST) /* the program has made a circle of the list */
            break;
    }
    shorten_list(heap, class, last);
    guarded_count(class, count);
}

static __attribute__((noinline, cold)) void *malloc_by_detour(size_t size, const void *caller)
{
    detour_end();
    void *p = alloc_malloc_quick(size);
    if (p == NULL)
        p = alloc_malloc_slow(size, caller);
    detour_begin();
    return p;
}

void *alloc_malloc_slow(size_t size, const void *caller)
{
    if (size > SIZE_CLASS_BYTES_MAX) {
        bool zero;
        return alloc_large(size, 1, &zero, caller);
    }
    if (UNLIKELY(thread_is_away()))
        return malloc_by_detour(size, caller);
    if (!CAIRN_HARDENED && guarded_is_on()) {
        void *guarded = guarded_next(size_class(size), size);
        if (guarded != NULL) {
            guarded_count(size_class(size), 1);
            return guarded;
        }
        /* guarded_next() has read the stack. Reading the stack may allocate, and so begin a
         * detour. */
        if (UNLIKELY(thread_is_away()))
            return malloc_by_detour(size, caller);
    }
    struct heap *heap = thread_heap;
    unsigned class = size_class(size);
    if (heap->list[class] != NULL)
        return heap_pop_checked(heap, class);
    if (is_emergency())
        return emergency_allocate(size, 1);
    if (LIKELY(heap_steal(heap, class))) {
        count_list(heap, class, 0);
        void *block = heap_pop_checked(heap, class);
        detour_look(heap);
        return block;
    }
    if (UNLIKELY(heap == &heap_none || heap == &heap_gone)) {
        void *first = heap == &heap_none ? thread_first(size) : NULL;
        if (first != NULL)
            return first;
        heap = thread_birth();
        if (heap == NULL)
            return thread_late(size);
        if (heap->list[class] != NULL) /* thread_birth() may have allocated */
            return heap_pop_checked(heap, class);
    }
    void *block = allocate_small(heap, class);
    count_list(heap, class, 1);
    background_look();
    detour_look(heap);
    return block;
}

void *alloc_calloc_slow(size_t count, size_t size, const void *caller)
{
    size_t bytes;
    bool zero = false;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    void *p =
        bytes <= SIZE_CLASS_BYTES_MAX ? alloc_malloc(bytes) : alloc_large(bytes, 1, &zero, caller);
    if (p != NULL && !zero)
        memset(p, 0, bytes);
    return p;
}

void *alloc_aligned_quick(size_t alignment, size_t size)
{
    if (alignment <= 16)
        return alloc_malloc_quick(size);
    unsigned class = size_class_aligned(size, alignment);
    return class < SIZE_CLASS_COUNT ? alloc_malloc_quick(size_class_bytes(class)) : NULL;
}

void *alloc_aligned_slow(size_t alignment, size_t size, const void *caller)
{
    if (alignment <= 16) {
        void *p = alloc_malloc_quick(size);
        return LIKELY(p != NULL) ? p : alloc_malloc_slow(size, caller);
    }
    unsigned class = size_class_aligned(size, alignment);
    if (class < SIZE_CLASS_COUNT) {
        size_t bytes = size_class_bytes(class);
        void *p = alloc_malloc_quick(bytes);
        if (LIKELY(p != NULL))
            return p;
        /* alloc_malloc_slow() would also use emergency.h, but does not know the alignment. */
        return is_emergency() ? emergency_allocate(size, alignment)
                              : alloc_malloc_slow(bytes, caller);
    }
    bool zero;
    return alloc_large(size, alignment, &zero, caller);
}

/* --- freeing ---------------------------------------------------------------------------------- */

/* Returns the record of the run in use that `p` lies in. Returns NULL if `p` is a block of
 * emergency.h or guarded_block.h. Ends the program if `p` is not a block. */
static struct slab *run_of(const void *p)
{
    size_t index = region_index(p);
    if (!region_has(index)) {
        if (guarded_has(p) || emergency_owns(p))
            return NULL;
        slab_misused("a pointer that this allocator never handed out", p);
    }
    struct slab *slab = slab_at(index);
    if (slab->kind == RUN_TAIL)
        slab -= slab->back;
    if (slab->kind == RUN_LARGE) {
        if (p != slab_start(slab))
            slab_misused("a pointer into the middle of a large block", p);
    } else if (slab->kind != RUN_SLAB) {
        slab_misused("a pointer to no live block: freed before, or never allocated", p);
    } else if (!slab_has_block(slab, p)) {
        slab_misused("a pointer that is not the start of a block", p);
    } else if (slab_is_hidden(slab, (size_t)((const char *)p - slab_start(slab)))) {
        slab_misused("a pointer to no live block: freed before, or never allocated", p);
    }
    return slab;
}

static __attribute__((noinline, cold)) void free_by_detour(void *p)
{
    detour_end();
    alloc_free(p);
    detour_begin();
}

/* Slow path of free_large(). There are three cases: the block belongs to a shared heap, its owner
 * is the mark of site_keeps(), or the thread's run cache did not take its run. */
static __attribute__((noinline)) void free_large_slowly(struct slab *slab)
{
    if (UNLIKELY(thread_is_away())) {
        free_by_detour(slab_start(slab));
        return;
    }
    if (is_emergency())
        return; /* the block stays allocated */
    struct heap *keeper = atomic_load_explicit(&slab->owner, memory_order_acquire);
    if (UNLIKELY(keeper != NULL)) {
        if (!site_keeps(keeper))
            heap_drop_large(keeper, slab);
        else
            atomic_store_explicit(&slab->owner, NULL, memory_order_relaxed);
        if (site_is_counted())
            site_give_back(slab);
    }
    background_look();
    if (UNLIKELY(!thread_has_heap()) && thread_birth() == NULL) {
        large_free(slab);
        return;
    }
    lock_enter();
    if (UNLIKELY(big_cache_is_on()))
        heap_free_by_place(thread_heap, slab);
    else
        heap_free_large(thread_heap, slab);
    lock_leave();
    detour_look(thread_heap);
}

static inline void free_large(struct slab *slab, struct heap *heap)
{
    struct run_cache *runs = &heap->runs; /* of heap_none, heap_gone: always full */
    bool kept = atomic_load_explicit(&slab->owner, memory_order_acquire) == NULL &&
                (run_cache_put(runs, slab) || run_cache_put_long(runs, slab));
    if (UNLIKELY(!kept))
        free_large_slowly(slab);
}

void alloc_free_slow(void *p)
{
    if (p == NULL)
        return;
    struct slab *slab = run_of(p);
    if (slab == NULL) {
        guarded_or_emergency_free(p);
        return;
    }
    /* When alloc_free() looked, there was no block at `p`. Since then, another thread may have made
     * a large block there. */
    if (slab->kind == RUN_LARGE)
        free_large(slab, thread_heap);
    else
        slab_misused("a block is freed twice", p);
}

/* Returns whether this thread owns the slab. A thread that had no heap gets one, so that it can
 * gather the blocks that it frees, unless it is still new (thread_first()). */
static inline bool is_of_this_thread(struct slab *slab)
{
    if (UNLIKELY(thread_heap == &heap_none) && !lock_is_unsafe() && !thread_is_first())
        thread_birth();
    /* The owner is read after thread_birth(). That function may return an idle heap, and other
     * threads may take slabs from a heap as long as it is idle. */
    return atomic_load_explicit(&slab->owner, memory_order_relaxed) == thread_heap;
}

/* Frees a small block that another heap owns, or a block of this thread that begins behind the
 * first slice of its slab. `slab` is the record of the slice that the block begins in. */
static __attribute__((noinline)) void free_small(void *p, struct slab *slab)
{
    struct block *block = p;
    size_t offset = (uintptr_t)p % SLICE_BYTES;
    if (slab->kind == RUN_TAIL) {
        offset += (size_t)slab->back << SLICE_SHIFT;
        slab -= slab->back;
    }
    uintptr_t last = slab_key(block, NULL);
    if (UNLIKELY(slab->kind != RUN_SLAB ||
                 (!slab_begins(slab, (uint32_t)offset) &&
                  (!slab_has_block(slab, p) || slab_is_hidden(slab, offset))) ||
                 slab_is_marked_by(block, last)))
        alloc_free_slow(p);
    else if (is_of_this_thread(slab))
        heap_free(thread_heap, slab, block, last);
    else if (UNLIKELY(thread_is_away()))
        free_by_detour(p);
    else if (!heap_begin_batch(thread_heap, slab, block, offset, last) &&
             UNLIKELY(!remote_post_quick(slab, block, offset, last)))
        heap_post(slab, block);
}

void alloc_free_other(void *p, struct slab *slab, struct heap *heap, uintptr_t last)
{
    struct block *block = p;
    size_t offset = (uintptr_t)p % SLICE_BYTES;
    if (UNLIKELY(offset == 0 && PEEK(slab->kind) == RUN_LARGE)) {
        free_large(slab, heap);
        return;
    }
    struct batch *batch = batch_of(heap->batches, slab);
    /* A batch only has blocks of a slab with one slice, so `slab` is the record of the whole slab.
     * The slab cannot end meanwhile, because the blocks of the batch count as live. */
    if (LIKELY(batch_is_of(batch, slab) && slab_begins(slab, (uint32_t)offset) &&
               !slab_is_marked_by(block, last))) {
        if (UNLIKELY(!batch_add(batch, block, offset, last)))
            heap_post_full(heap, batch);
    } else {
        free_small(p, slab);
    }
}

/* --- resizing --------------------------------------------------------------------------------- */

static size_t usable_bytes(struct slab *slab)
{
    return slab->kind == RUN_LARGE ? large_bytes(slab) : size_class_bytes(slab->class);
}

/* Ends the program if `p`, a block of this run, is marked as free. `what` describes the misuse in
 * the line on stderr. */
static void refuse_freed(const struct slab *slab, const void *p, const char *what)
{
    if (slab->kind != RUN_LARGE && UNLIKELY(slab_is_marked(p)))
        slab_misused(what, p);
}

size_t alloc_usable_size(const void *p)
{
    if (p == NULL)
        return 0;
    struct slab *slab = run_of(p);
    if (slab == NULL)
        return guarded_or_emergency_bytes(p);
    refuse_freed(slab, p, "the size of a block is asked after it was freed");
    return usable_bytes(slab);
}

/* Returns the slices of a large block that were not requested. Only a long run has any. */
static uint32_t slack_of(const struct slab *slab)
{
    return slab->slices > RUN_CACHE_RUN_MAX ? slab->slack : 0;
}

/* Notes that a large block has `now` slices that were not requested, and had `before`. */
static void note_slack(uint32_t before, uint32_t now)
{
    if (UNLIKELY(now < before) && thread_has_heap())
        run_cache_lose_slack(&thread_heap->runs, before - now);
}

static bool resize_large(struct slab *slab, size_t size)
{
    uint32_t before = slack_of(slab);
    bool done = size > SIZE_CLASS_BYTES_MAX && !lock_is_unsafe() && large_resize(slab, size);
    note_slack(before, slack_of(slab));
    return done;
}

static bool resize(struct slab *slab, void *p, size_t size)
{
    if (slab->kind == RUN_LARGE)
        return resize_large(slab, size);
    refuse_freed(slab, p, "a block is resized after it was freed");
    size_t have = usable_bytes(slab);
    /* The first blocks of a thread have at least 64 bytes (thread_first()). */
    return size <= have && (size > have / 2 || have <= 64);
}

bool alloc_resize(void *p, size_t size)
{
    struct slab *slab = run_of(p);
    return slab != NULL && resize(slab, p, size);
}

/* Copies the block `p`, of `have` bytes, to the block `moved`, of `size` bytes. Frees `p` and
 * returns `moved`. If `moved` is NULL because there was no memory, returns `p` if the block
 * shrinks, and NULL if it grows. */
static inline __attribute__((always_inline)) void *replace_block(void *p, size_t have, void *moved,
                                                                 size_t size)
{
    if (moved == NULL)
        return size <= have ? p : NULL;
    memcpy(moved, p, size < have ? size : have);
    alloc_free(p);
    return moved;
}

void *alloc_realloc_small(void *p, size_t size)
{
    if (p == NULL)
        return alloc_malloc(size);
    struct slab *slab = run_of(p);
    if (UNLIKELY(slab == NULL))
        return replace_block(p, guarded_or_emergency_bytes(p), alloc_malloc(size), size);
    if (resize(slab, p, size))
        return p;
    return replace_block(p, usable_bytes(slab), alloc_malloc(size), size);
}

/* Counts the block that a large block moves to as a new block of the call site of `caller`. The
 * block has no place, so that its run is not kept by place. Returns `p`, which may be NULL. */
static void *count_moved(void *p, size_t size, const void *caller)
{
    if (UNLIKELY(big_cache_is_on()) && p != NULL)
        note_place(p, 0);
    return count_for_site(p, size, caller, false);
}

void *alloc_realloc_large(void *p, size_t size, const void *caller)
{
    if (p == NULL || UNLIKELY(large_is_impossible(size)))
        return alloc_malloc_slow(size, caller);
    struct slab *slab = run_of(p);
    if (UNLIKELY(slab == NULL || is_emergency()))
        return replace_block(p, alloc_usable_size(p), alloc_malloc_slow(size, caller), size);
    if (resize(slab, p, size))
        return p;
    size_t have = usable_bytes(slab);
    bool grows = slab->kind == RUN_LARGE && size > have;
    const struct heap *owner = atomic_load_explicit(&slab->owner, memory_order_relaxed);
    if (grows && (owner == NULL || site_keeps(owner))) {
        uint32_t slack = slack_of(slab);
        void *there = large_move(slab, size);
        if (there != NULL)
            note_slack(slack, 0);
        background_look();
        if (there != NULL)
            return count_moved(there, size, caller);
    }
    void *moved = grows ? count_moved(large_allocate_to_grow(size), size, caller) : NULL;
    background_look();
    if (moved == NULL)
        moved = alloc_malloc_slow(size, caller);
    /* The failed attempts gave kept runs back to the page heap. The slices behind the block may
     * therefore be free now. */
    if (UNLIKELY(moved == NULL) && resize(slab, p, size))
        return p;
    return replace_block(p, have, moved, size);
}
