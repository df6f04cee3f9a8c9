#include "alloc/heap.h"

#include "alloc/broken.h"
#include "alloc/guarded_run.h"
#include "alloc/purge.h"
#include "alloc/run_cache_learning.h"
#include "alloc/slab_list.h"
#include "alloc/slab_trim.h"

#include <string.h>

struct lock heaps_lock;
static struct heap *_Atomic heaps;
static struct heap *heap_left; /* heap of the last heap_leave(), or NULL */
/* The heap that became idle last comes first: its memory is the warmest. */
static struct heap *heaps_idle;
/* A bit per class: some idle heap may have a parked slab of this class. The bit is only a hint. */
static _Atomic uint64_t idle_offers;
_Atomic uint32_t heaps_in_use;
static _Atomic uint32_t heaps_made; /* written under heaps_lock */
static size_t heaps_fresh;          /* slice that new heaps are cut from; 0: none */
static size_t heaps_cut;            /* heaps cut from that slice */

static _Atomic uint64_t posts_gone; /* the result of heap_posts_gone() */

/* --- slabs; the caller holds the lock of their heap ------------------------------------------- */

/* Returns the list that a PARKED or FULL slab is on. */
static uint32_t *list_of(struct heap *owner, struct slab *slab)
{
    return remote_state(slab) == REMOTE_FULL ? &owner->full : &owner->partial[slab->class];
}

/* Ends the slab: from now on its run is not a slab. Counts the posted blocks that were not
 * collected. */
static void end_slab(struct slab *slab)
{
    uint32_t posted = remote_count_of(atomic_load_explicit(&slab->posted, memory_order_relaxed));
    if (posted > 0)
        atomic_fetch_add_explicit(&posts_gone, posted, memory_order_relaxed);
    slab_destroy(slab);
}

static void discard(struct slab *slab)
{
    size_t index = slab_index(slab);
    size_t slices = slab->slices;
    end_slab(slab);
    purge_free(index, slices);
}

/* Gives back a slab without a live block. */
static void give_back(struct slab *slab)
{
    slab_is_free(slab);
    discard(slab);
}

/* --- the owner's side ------------------------------------------------------------------------- */

/* Moves `rest` into `until`, so that `until` counts all live blocks. The caller holds the heap's
 * lock, so that no claim sees only one of the two stores. A thread that posts a block (remote.h)
 * may read the two fields without the lock. Between the two stores, that thread sees too few live
 * blocks, never too many. It then takes the lock and reads both fields again. */
static uint32_t fold(struct slab *slab)
{
    uint32_t live = atomic_load_explicit(&slab->until, memory_order_relaxed) +
                    atomic_load_explicit(&slab->rest, memory_order_relaxed);
    atomic_store_explicit(&slab->rest, 0, memory_order_relaxed);
    atomic_store_explicit(&slab->until, live, memory_order_release);
    return live;
}

/* Makes the current slab, which has no free block left, FULL (remote.h). After an eighth of its
 * blocks were freed by the owner, heap_event() parks the slab. Returns false if blocks were posted
 * to the slab meanwhile. The slab then stays current. */
static bool put_aside(struct heap *heap, struct slab *slab)
{
    lock_take(&heap->lock);
    slab_divide_live(slab, atomic_load_explicit(&slab->until, memory_order_relaxed));
    remote_set_state(slab, REMOTE_FULL);
    bool aside = remote_count_of(atomic_load_explicit(&slab->posted, memory_order_relaxed)) == 0;
    if (aside) {
        slab_list_add(&heap->full, slab);
        heap->current[slab->class] = NULL;
    } else {
        remote_set_state(slab, REMOTE_CURRENT);
        fold(slab);
    }
    lock_drop(&heap->lock);
    return aside;
}

/* (owner only) Takes the blocks that other threads posted to the slab. */
static struct block *collect(struct heap *heap, struct slab *slab, uint32_t *count)
{
    struct block *first = remote_collect(slab, count);
    heap_count(&heap->statistics.posts, *count);
    return first;
}

/* Takes the first parked slab of the class from the heap `from`, makes it CURRENT, and makes `to`
 * its owner. Returns NULL if `from` has no such slab. The caller holds the lock of `from`, and no
 * other thread allocates from `from`. */
static struct slab *take_parked(struct heap *from, struct heap *to, unsigned class)
{
    if (from->partial[class] == 0)
        return NULL;
    struct slab *slab = slab_at(from->partial[class]);
    slab_list_remove(&from->partial[class], slab);
    remote_set_state(slab, REMOTE_CURRENT);
    if (fold(slab) == 0)
        from->empty &= ~(UINT64_C(1) << class);
    slab_count_hidden(slab);
    heap_trim_uncount(from, slab);
    atomic_store_explicit(&slab->owner, to, memory_order_release);
    return slab;
}

static struct slab *reopen(struct heap *heap, unsigned class)
{
    lock_take(&heap->lock);
    struct slab *slab = take_parked(heap, heap, class);
    lock_drop(&heap->lock);
    if (slab != NULL)
        heap_trim_reopened(heap, slab);
    return slab;
}

static void offer(uint64_t classes)
{
    atomic_fetch_or_explicit(&idle_offers, classes, memory_order_relaxed);
}

/* Takes a parked slab from an idle heap. Returns NULL if no idle heap has one. */
static struct slab *adopt(struct heap *heap, unsigned class)
{
    uint64_t bit = UINT64_C(1) << class;
    if (LIKELY((atomic_load_explicit(&idle_offers, memory_order_relaxed) & bit) == 0))
        return NULL;
    /* The bit is cleared before the search, so that an offer made during the search is kept. */
    atomic_fetch_and_explicit(&idle_offers, ~bit, memory_order_relaxed);
    struct slab *slab = NULL;
    for (struct heap *other = heap_first(); other != NULL && slab == NULL; other = other->next) {
        if (!atomic_load_explicit(&other->idle, memory_order_relaxed))
            continue;
        lock_take(&other->lock);
        if (atomic_load_explicit(&other->idle, memory_order_relaxed))
            slab = take_parked(other, heap, class);
        lock_drop(&other->lock);
    }
    if (slab != NULL) {
        heap_count(&heap->statistics.slabs_adopted, 1);
        offer(bit); /* there may be more such slabs */
    }
    return slab;
}

/* Returns how many slices each of `threads` heaps may keep. */
static uint32_t run_share(uint32_t threads)
{
    uint32_t share = run_cache_share(threads);
    return UNLIKELY(run_cache_is_learnt()) ? run_cache_learnt(share) : share;
}

uint32_t heap_run_share(void)
{
    return run_share(atomic_load_explicit(&heaps_in_use, memory_order_relaxed));
}

uint32_t heap_kept_slices(const struct heap *heap)
{
    const struct run_cache *runs = &heap->runs;
    return runs->slices + (runs->long_run != 0 ? slab_at(runs->long_run)->slices : 0) +
           (heap->big != NULL ? heap->big->slices : 0);
}

void heap_missed(struct heap *heap)
{
    run_cache_learning_missed(heap_kept_slices(heap),
                              atomic_load_explicit(&heaps_in_use, memory_order_relaxed));
}

void heap_free_large(struct heap *heap, struct slab *slab)
{
    if (UNLIKELY(run_cache_is_learnt()))
        run_cache_learning_freed(heap_kept_slices(heap));
    run_cache_policy_free(&heap->runs, slab, heap_run_share());
    heap->trim.due |= heap->runs.slices > HEAP_TRIM_SLICES;
}

void *heap_reuse_long(struct heap *heap, size_t size)
{
    enum { LOOK_EVERY = 64 };
    if (heap->runs.long_run == 0) /* also in heap_none and heap_gone */
        return NULL;
    /* A thread that only reuses its long run would call purge_look() nowhere else. */
    if (++heap->long_reuses % LOOK_EVERY == 0) {
        heap->runs.most = heap_run_share();
        purge_look();
    }
    return run_cache_policy_take_long(&heap->runs, size);
}

/* (owner only) Ends a slab without a live block, and keeps its run for the next slab or large
 * block. */
static void end_and_keep_run(struct heap *heap, struct slab *slab)
{
    slab_is_free(slab);
    end_slab(slab);
    if (!run_cache_put(&heap->runs, slab))
        heap_free_large(heap, slab);
}

static struct slab *make_slab(struct heap *heap, unsigned class)
{
    bool zero = false;
    size_t index = run_cache_policy_take(&heap->runs, slab_slices(class));
    if (UNLIKELY(heap->big != NULL) && index == 0)
        heap_shrink_by_place(heap);
    if (index == 0)
        index = guarded_run_for_slab(slab_slices(class), &zero);
    if (index == 0)
        return NULL;
    heap_count(&heap->statistics.slabs_made, 1);
    return slab_create(index, class, heap, zero);
}

void *heap_pop_checked(struct heap *heap, unsigned class)
{
    struct block *block = heap->list[class];
    if (UNLIKELY(!slab_is_marked(block)))
        slab_misused("a free block was written to", block);
    return heap_pop(heap, class, block);
}

/* (owner only) Returns the first blocks of a list to their slab, up to the first block of another
 * slab. Usually all blocks of a list are of one slab. Returns the rest of the list. Takes the
 * heap's lock. */
static struct block *cool_slab(struct heap *heap, struct block *first)
{
    struct slab *slab = slab_of(first);
    uintptr_t start = (uintptr_t)slab_start(slab);
    size_t bytes = (size_t)slab->slices << SLICE_SHIFT;
    /* Returns at most `until` blocks at a time, because heap_event() must be called when `until`
     * reaches 0. */
    uint32_t until = atomic_load_explicit(&slab->until, memory_order_relaxed);
    uint32_t count = 0;
    struct block *last;
    struct block *next = first;
    do {
        if (UNLIKELY(!slab_is_marked(next)))
            slab_misused("a free block was written to", next);
        last = next;
        next = next->next;
    } while (++count < until && next != NULL && (uintptr_t)next - start < bytes);
    if (slab_free_many(slab, first, last, count))
        heap_event(heap, slab);
    return next;
}

/* (owner only) Returns the blocks on the list of a class to their slabs. Until the next refill,
 * freed blocks of the class go to their slabs instead of the list. Called when a slab has become
 * empty, because the program then uses less of the class. Takes the heap's lock. */
static void cool(struct heap *heap, unsigned class)
{
    struct block *block = heap->list[class];
    heap->list[class] = NULL;
    heap->room[class] = 0;
    heap->warm &= ~(UINT64_C(1) << class);
    while (block != NULL)
        block = cool_slab(heap, block);
}

enum { REFILLS = 256 }; /* between two calls of purge_look() */

/* (owner only) Fills the list from the class's own slabs, and returns a block. Returns NULL if
 * there is no memory. */
static void *refill(struct heap *heap, unsigned class)
{
    if (class <= HEAP_LENT_CLASS_MAX)
        heap->lent[class] = HEAP_LENT_MOST;
    if (UNLIKELY(heap_count(&heap->statistics.refills, 1) % REFILLS == 0)) {
        purge_look();
        /* The next detour then counts an epoch that the heap waits (heap_trim.h). */
        heap->trim.due |= heap->trim.wait > 0 && heap->trim.epoch != purge_epoch();
    }
    /* From now on the list keeps freed blocks, unless blocks are guarded (guarded_block.h). */
    heap->warm |= guarded_is_on() ? 0 : UINT64_C(1) << class;
    heap_set_room(heap, class, 0);
    for (;;) {
        struct slab *slab = heap->current[class];
        if (slab != NULL) {
            uint32_t count;
            struct block *first = slab_steal(slab, &count);
            if (first == NULL)
                first = slab_second_first(collect(heap, slab, &count));
            if (first == NULL && (first = slab_restore(slab, &count)) != NULL)
                count = guarded_is_on() ? count : 0; /* counted like carved blocks */
            else if (first == NULL) {
                /* `room` does not count carved blocks. A block that is freed while carved blocks
                 * are on the list is therefore pushed in front of them and handed out next. So no
                 * freed block leaves a gap in the order of addresses, and blocks that are allocated
                 * together lie side by side. */
                first = slab_carve(slab, &count);
                count = guarded_is_on() ? count : 0;
            }
            if (first != NULL) {
                heap->list[class] = first;
                heap_set_room(heap, class, count);
                return heap_pop_checked(heap, class);
            }
            if (!put_aside(heap, slab))
                continue;
        }
        if (heap->batched != 0)
            heap_post_batches(heap);
        slab = reopen(heap, class);
        /* A shared heap adopts no slab, because heap_destroy() would also free those blocks of an
         * adopted slab that the program allocated from other heaps. */
        if (slab == NULL && !heap->shared)
            slab = adopt(heap, class);
        if (slab == NULL)
            slab = make_slab(heap, class);
        if (slab == NULL)
            return NULL;
        heap->current[class] = slab;
    }
}

/* (owner only) Returns the class whose blocks serve requests of `class` now: a larger class while
 * the process has only one chunk and little was borrowed for `class`, otherwise `class` itself.
 * count_list() (alloc.c) counts only blocks of `class` itself, so none is borrowed if blocks are
 * guarded. */
static unsigned lender(const struct heap *heap, unsigned class)
{
    if (CAIRN_HARDENED || guarded_is_on() || class > HEAP_LENT_CLASS_MAX ||
        heap->lent[class] == HEAP_LENT_MOST ||
        atomic_load_explicit(&region.slices, memory_order_relaxed) > CHUNK_SLICES)
        return class;
    return size_class_coarse(class, heap->lent[class] < HEAP_LENT_COARSEST ? 1 : 4);
}

/* (owner only) Returns a block of the class `from` for a request of `class`. Returns NULL if there
 * is no memory. */
static void *lend(struct heap *heap, unsigned class, unsigned from)
{
    void *block = heap->list[from] != NULL || heap_steal(heap, from) ? heap_pop_checked(heap, from)
                                                                     : refill(heap, from);
    if (block != NULL) {
        size_t lent =
            heap->lent[class] + (size_class_bytes(from) + HEAP_LENT_UNIT - 1) / HEAP_LENT_UNIT;
        heap->lent[class] = lent < HEAP_LENT_MOST ? (uint8_t)lent : HEAP_LENT_MOST;
    }
    return block;
}

void *heap_refill(struct heap *heap, unsigned class)
{
    unsigned from = lender(heap, class);
    void *block = from != class ? lend(heap, class, from) : NULL;
    return block != NULL ? block : refill(heap, class);
}

void heap_event(struct heap *heap, struct slab *slab)
{
    enum remote_state state = remote_state(slab);
    if (state == REMOTE_CURRENT || lock_is_unsafe())
        return; /* the owner will allocate from the empty slab */
    lock_take(&heap->lock);
    uint32_t *list = list_of(heap, slab);
    unsigned class = slab->class; /* read under the lock: later, the slab may be gone */
    uint32_t live = fold(slab);
    bool over = live == 0 || remote_has_all(slab);
    heap->runs.most = heap_run_share();
    /* One empty slab per class is kept: the next refill may need it soon. */
    if (live == 0 && heap->runs.most > 0 && (heap->empty >> class & 1) == 0) {
        heap->empty |= UINT64_C(1) << class;
        over = false;
    }
    if (over || remote_state(slab) == REMOTE_FULL) {
        slab_list_remove(list, slab);
        remote_set_state(slab, over ? REMOTE_CLAIMED : REMOTE_PARKED);
        if (over) {
            heap_trim_uncount(heap, slab);
        } else {
            slab_list_add(&heap->partial[class], slab);
            heap_trim_count(heap, slab);
        }
    } else if (live > 0) { /* an eighth was freed since the last look (heap_trim.h) */
        heap_trim_count(heap, slab);
    }
    lock_drop(&heap->lock);
    if (over) {
        lock_enter();
        end_and_keep_run(heap, slab);
        lock_leave();
    }
    if (live == 0)
        cool(heap, class);
    if (!CAIRN_HARDENED && UNLIKELY(heap->trim.due | purge_is_due()))
        heap_due();
}

/* --- the other threads' side ------------------------------------------------------------------ */

/* Takes the lock of the heap that owns the slab, and returns the heap. The owner does not change
 * while the lock is held. Ends the program if the slab has no owner, because `block`, which is
 * being freed, was freed before. */
static struct heap *lock_owner(struct slab *slab, const struct block *block)
{
    for (;;) {
        struct heap *owner = atomic_load_explicit(&slab->owner, memory_order_acquire);
        if (UNLIKELY(owner == NULL || site_keeps(owner)))
            slab_misused("a block is freed twice, the last time by another thread", block);
        lock_take(&owner->lock);
        if (atomic_load_explicit(&slab->owner, memory_order_acquire) == owner)
            return owner;
        lock_drop(&owner->lock);
    }
}

void heap_post_locked(struct slab *slab, struct block *first, struct block *last, uint32_t count)
{
    struct heap *owner = lock_owner(slab, first);
    bool claimed = false;
    enum remote_post came = remote_post_locked(slab, first, last, count);
    if (came == REMOTE_LAST && remote_has_all(slab)) {
        slab_list_remove(list_of(owner, slab), slab);
        remote_set_state(slab, REMOTE_CLAIMED);
        owner->statistics.claims++;
        claimed = true;
    } else if (came != REMOTE_POSTED && remote_state(slab) == REMOTE_FULL) {
        slab_list_remove(&owner->full, slab);
        remote_set_state(slab, REMOTE_PARKED);
        slab_list_add(&owner->partial[slab->class], slab);
        owner->statistics.wakes++;
        if (atomic_load_explicit(&owner->idle, memory_order_relaxed))
            offer(UINT64_C(1) << slab->class);
    }
    lock_drop(&owner->lock);
    if (claimed)
        give_back(slab);
}

void heap_post(struct slab *slab, struct block *block)
{
    if (UNLIKELY(remote_post(slab, block, block, 1) != REMOTE_POSTED) && !lock_is_unsafe())
        heap_post_locked(slab, block, block, 1);
}

/* --- collecting and sweeping ------------------------------------------------------------------ */

void heap_cool(struct heap *heap)
{
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++)
        cool(heap, class);
}

static struct slab *take_current(struct heap *heap, unsigned class)
{
    struct slab *slab = heap->current[class];
    heap->current[class] = NULL;
    if (slab != NULL)
        slab_uncount_hidden(slab);
    return slab;
}

void heap_take_posted(struct heap *heap, struct slab *slab)
{
    uint32_t count;
    fold(slab);
    struct block *first = collect(heap, slab, &count);
    if (first != NULL)
        slab_take_back(slab, first, count);
    remote_look_again(slab);
}

bool heap_claim(uint32_t *list, struct slab *slab, bool is_empty)
{
    if (!is_empty)
        return false;
    slab_list_remove(list, slab);
    remote_set_state(slab, REMOTE_CLAIMED);
    give_back(slab);
    return true;
}

void heap_collect(struct heap *heap)
{
    heap_post_batches(heap);
    heap_cool(heap);
    run_cache_policy_drain(&heap->runs); /* after heap_cool(), which may keep more runs */
    heap_drain_by_place(heap);
    lock_take(&heap->lock);
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++) {
        struct slab *slab = take_current(heap, class);
        if (slab != NULL) {
            remote_set_state(slab, REMOTE_PARKED);
            slab_list_add(&heap->partial[class], slab);
        }
        for (uint32_t index = heap->partial[class], next; index != 0; index = next) {
            slab = slab_at(index);
            next = slab->next;
            heap_take_posted(heap, slab);
            heap_claim(&heap->partial[class], slab, slab_live(slab) == 0 || remote_has_all(slab));
        }
    }
    heap->empty = 0;
    lock_drop(&heap->lock);
}

static size_t sweep_list(uint32_t *list)
{
    size_t claims = 0;
    for (uint32_t index = *list, next; index != 0; index = next) {
        struct slab *slab = slab_at(index);
        next = slab->next;
        claims += heap_claim(list, slab, remote_has_all(slab));
    }
    return claims;
}

/* --- heaps begin and end ---------------------------------------------------------------------- */

/* Returns the memory of a new heap, all zero. The slice that it lies in is never given back. */
static struct heap *cut_heap(void)
{
    size_t stride = (sizeof(struct heap) + HEAP_QUARANTINE_BYTES + 63) & ~(size_t)63;
    if (heaps_fresh == 0 || (heaps_cut + 1) * stride > SLICE_BYTES) {
        bool zero;
        size_t index = guarded_run_for_us(1, &zero);
        if (index == 0)
            return NULL;
        if (!zero)
            __builtin_memset(region_address(index), 0, SLICE_BYTES);
        atomic_store_explicit(&slab_at(index)->kind, RUN_OWN, memory_order_relaxed);
        heaps_fresh = index;
        heaps_cut = 0;
    }
    return (struct heap *)((char *)region_address(heaps_fresh) + heaps_cut++ * stride);
}

static struct slab *take_first(uint32_t *list)
{
    if (*list == 0)
        return NULL;
    struct slab *slab = slab_at(*list);
    slab_list_remove(list, slab);
    return slab;
}

/* Takes any one slab off the heap's lists. Returns NULL if no slab is left. After the call, no
 * class below `*class` has a current or parked slab, as long as the heap's lock is held. So a loop
 * may pass the same `class` again. */
static struct slab *take_any(struct heap *heap, unsigned *class)
{
    for (; *class < SIZE_CLASS_COUNT; ++*class) {
        struct slab *slab = heap->current[*class] != NULL ? take_current(heap, *class)
                                                          : take_first(&heap->partial[*class]);
        if (slab != NULL)
            return slab;
    }
    return take_first(&heap->full);
}

/* Puts a CURRENT slab, which is on no list, on a list of an idle heap. */
static void park_in(struct heap *heap, struct slab *slab)
{
    lock_take(&heap->lock);
    remote_set_state(slab, REMOTE_PARKED);
    slab_list_add(&heap->partial[slab->class], slab);
    offer(UINT64_C(1) << slab->class);
    heap_claim(&heap->partial[slab->class], slab, slab_live(slab) == 0 || remote_has_all(slab));
    lock_drop(&heap->lock);
}

/* Moves all slabs from one idle heap to another. The caller holds heaps_lock. */
static void evacuate(struct heap *from, struct heap *to)
{
    for (;;) {
        lock_take(&from->lock);
        /* Each search starts at class 0: while the lock was free, other threads may have moved a
         * full slab to the list of any class. */
        unsigned class = 0;
        struct slab *slab = take_any(from, &class);
        if (slab != NULL) {
            remote_set_state(slab, REMOTE_CURRENT);
            fold(slab);
            heap_trim_uncount(from, slab);
            atomic_store_explicit(&slab->owner, to, memory_order_release);
        }
        lock_drop(&from->lock);
        if (slab == NULL)
            return;
        park_in(to, slab);
    }
}

static bool has_slabs(struct heap *heap)
{
    lock_take(&heap->lock);
    bool has = heap->full != 0;
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++)
        has |= heap->partial[class] != 0;
    lock_drop(&heap->lock);
    return has;
}

/* Returns an idle heap. If `empty` is true, the slabs of that heap first move to the next idle
 * heap. Returns NULL if there is no idle heap, or no second one to take the slabs. The caller holds
 * heaps_lock. */
static struct heap *take_idle(bool empty)
{
    struct heap *heap = heaps_idle;
    if (heap == NULL || (empty && heap->next_idle == NULL && has_slabs(heap)))
        return NULL;
    if (empty && heap->next_idle != NULL)
        evacuate(heap, heap->next_idle);
    heaps_idle = heap->next_idle;
    lock_take(&heap->lock);
    atomic_store_explicit(&heap->idle, false, memory_order_relaxed);
    lock_drop(&heap->lock);
    /* make_idle() has collected the parked slabs, which therefore report no free. */
    heap->trim.due = !empty;
    heap->trim.wait = 0;
    return heap;
}

struct heap *heap_acquire(bool empty)
{
    lock_take(&heaps_lock);
    if (slab_secret == 0) /* no block exists before the first heap */
        slab_secret = hardening_begin();
    struct heap *heap = empty ? NULL : heap_left;
    if (heap != NULL)
        heap_left = NULL;
    else
        heap = take_idle(empty);
    if (heap == NULL && (heap = cut_heap()) != NULL) {
        __builtin_memcpy(heap->class_table, size_class_table, sizeof size_class_table);
        heap->next = atomic_load_explicit(&heaps, memory_order_relaxed);
        atomic_store_explicit(&heaps, heap, memory_order_release);
        heaps_made++;
    }
    if (heap != NULL) {
        heap->has_thread = true;
        heap->runs.most = run_share(++heaps_in_use);
        heap->runs.slack_shift = SLACK_QUARTER;
    }
    lock_drop(&heaps_lock);
    return heap;
}

/* Makes the heap idle, with the slabs that it has. */
static void retire(struct heap *heap)
{
    lock_take(&heaps_lock);
    lock_take(&heap->lock);
    atomic_store_explicit(&heap->idle, true, memory_order_relaxed);
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++)
        if (heap->partial[class] != 0)
            offer(UINT64_C(1) << class);
    lock_drop(&heap->lock);
    heap->next_idle = heaps_idle;
    heaps_idle = heap;
    lock_drop(&heaps_lock);
}

/* Called when the heap has lost its thread, or when a shared heap is given up. The caller holds
 * heaps_lock. */
static void end_use(struct heap *heap)
{
    heap->has_thread = false;
    heaps_in_use--;
}

/* Gives back the free memory that the heap keeps, removes the heap as the owner of large blocks,
 * and makes the heap idle. */
static void make_idle(struct heap *heap)
{
    heap_collect(heap);
    lock_take(&heap->lock);
    for (uint32_t index = heap->full; index != 0; index = slab_at(index)->next)
        remote_look_again(slab_at(index));
    heap->statistics.claims += sweep_list(&heap->full);
    while (heap->large != 0) {
        struct slab *slab = slab_at(heap->large);
        slab_list_remove(&heap->large, slab);
        atomic_store_explicit(&slab->owner, site_keeper(slab), memory_order_release);
    }
    lock_drop(&heap->lock);
    retire(heap);
}

/* Sets heap_left to `next`, a heap or NULL. Returns the previous value of heap_left. */
static struct heap *take_left(struct heap *next)
{
    lock_take(&heaps_lock);
    struct heap *left = heap_left;
    heap_left = next;
    if (next != NULL)
        end_use(next);
    lock_drop(&heaps_lock);
    return left;
}

void heap_leave(struct heap *heap)
{
    heap_post_batches(heap);
    run_cache_policy_drain(&heap->runs);
    heap_drain_by_place(heap);
    struct heap *left = take_left(heap);
    if (left != NULL)
        make_idle(left);
}

void heap_release(struct heap *heap)
{
    lock_take(&heaps_lock);
    end_use(heap);
    lock_drop(&heaps_lock);
    make_idle(heap);
}

size_t heap_sweep(void)
{
    size_t all = 0;
    struct heap *left = take_left(NULL);
    if (left != NULL)
        make_idle(left);
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next) {
        lock_take(&heap->lock);
        size_t claims = sweep_list(&heap->full);
        for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++)
            claims += sweep_list(&heap->partial[class]);
        heap->statistics.claims += claims;
        lock_drop(&heap->lock);
        all += claims;
    }
    return all;
}

void heap_destroy(struct heap *heap)
{
    lock_take(&heaps_lock);
    end_use(heap);
    lock_drop(&heaps_lock);

    memset(heap->list, 0, sizeof heap->list);
    memset(heap->room, 0, sizeof heap->room);
    heap->warm = 0;
    lock_take(&heap->lock);
    struct slab *slab;
    unsigned class = 0;
    while ((slab = take_any(heap, &class)) != NULL) {
        remote_set_state(slab, REMOTE_CLAIMED);
        discard(slab_wipe(slab));
    }
    heap->empty = 0;
    while (heap->large != 0) {
        slab = slab_at(heap->large);
        slab_list_remove(&heap->large, slab);
        large_free(slab);
    }
    lock_drop(&heap->lock);
    retire(heap);
}

/* --- for statistics and fork ------------------------------------------------------------------ */

uint64_t heap_posts_gone(void)
{
    return atomic_load_explicit(&posts_gone, memory_order_relaxed);
}

bool heap_is_scarce(void)
{
    uint32_t in_use = atomic_load_explicit(&heaps_in_use, memory_order_relaxed);
    return in_use >= HEAP_SCARCE_LEAST &&
           in_use >= atomic_load_explicit(&heaps_made, memory_order_relaxed);
}

struct heap *heap_first(void)
{
    return atomic_load_explicit(&heaps, memory_order_acquire);
}

bool heap_is_at_rest(const struct heap *heap)
{
    return heap->shared || heap == heap_left;
}
