#include "alloc/heap_trim.h"

#include "alloc/page_heap.h"
#include "alloc/purge.h"
#include "alloc/slab_trim.h"
#include "base/ticks.h"

enum {
    /* wait_longer() counts at most this many looks in a row that gave back little. The heap then
     * waits for 63 epochs after each look. */
    WAITS = 8,

    /* A debt is large if it is at least DEBT_LEAST bytes and at least one part in DEBT_SHARE of the
     * memory in use. */
    DEBT_LEAST = 1 << 20,
    DEBT_SHARE = 16,

    LOOK_TICKS = 1 << 25, /* limit of a look: 7 ms at 5 GHz, 33 ms at 1 GHz */
    SEEN_TRIMMED = 128,   /* bit of slab.seen: the slab was trimmed */
    SEEN_MOST = HEAP_TRIM_COUNTED - 1,
};

/* One look at the slabs of a heap. */
struct look {
    bool at_once; /* also trims slabs that were not looked at before */
    bool trims;   /* false: the look trims nothing, it only finds `debt` */
    bool is_over; /* the look was ended because it took LOOK_TICKS */
    bool pending; /* some slab may be trimmed at the next look */
    uint64_t began_ticks;
    size_t debt;  /* bytes of free blocks in slabs that may be trimmed */
    size_t given; /* bytes given back */
};

/* Returns a mark from 1 to SEEN_MOST that stays the same if the number of live blocks changes
 * little. The mark is neither 0 nor HEAP_TRIM_COUNTED, because slab.seen has these values for a
 * slab that was not looked at since it was parked. */
static uint8_t mark_of(struct slab *slab)
{
    uint32_t live = slab_live(slab);
    uint32_t mark = 1 + (slab->capacity < SEEN_MOST ? live : live / 16);
    return (uint8_t)(mark < SEEN_MOST ? mark : SEEN_MOST);
}

/* Looks at one parked slab. Stores the mark of its number of live blocks in slab.seen. */
static void look_at(struct slab *slab, struct look *look)
{
    uint8_t mark = mark_of(slab);
    if (slab->seen == (mark | SEEN_TRIMMED))
        return;
    bool is_steady = slab->seen == mark;
    slab->seen = mark;
    if (!is_steady && !look->at_once) {
        look->pending = true;
        return;
    }
    look->debt += (slab->carved - slab_live(slab)) * size_class_bytes(slab->class);
    if (!look->trims) {
        look->pending = true;
        return;
    }
    look->given += slab_trim(slab);
    slab->seen = mark | SEEN_TRIMMED;
}

/* Called after a look at a parked slab with live blocks. heap_event() then counts the slab when an
 * eighth of its blocks were freed after the look, so that a heap without such slabs makes no
 * further look. Another thread that posts a block meanwhile may read too many live blocks. It then
 * posts without the heap's lock, even if the block is the last one. The caller therefore has to
 * check afterwards whether all live blocks are posted. */
static void watch(struct slab *slab)
{
    if (atomic_load_explicit(&slab->rest, memory_order_relaxed) != 0)
        return; /* it is watched since an earlier look */
    slab_divide_live(slab, slab_live(slab));
    if (atomic_load_explicit(&slab->rest, memory_order_relaxed) != 0)
        remote_look_again(slab);
}

/* Looks at the parked slabs of a class, except for the first `keep`. */
static void look_at_class(struct heap *heap, unsigned class, uint32_t keep, struct look *look)
{
    uint32_t *list = &heap->partial[class];
    for (uint32_t index = *list, next; index != 0 && !look->is_over; index = next) {
        struct slab *slab = slab_at(index);
        next = slab->next;
        if (keep > 0) {
            keep--;
            look->pending = true;
            if (slab->seen == HEAP_TRIM_COUNTED)
                slab->seen = 0; /* look_at_classes() has reset the count */
            continue;
        }
        bool is_kept = slab_live(slab) == 0; /* it is the class's one empty slab (heap->empty) */
        if (remote_count_of(atomic_load_explicit(&slab->posted, memory_order_relaxed)) > 0)
            heap_take_posted(heap, slab);
        if (slab_live(slab) == 0) {
            if (is_kept)
                heap->empty &= ~(UINT64_C(1) << class);
            heap_claim(list, slab, true);
        } else {
            look_at(slab, look);
            watch(slab);
            heap_claim(list, slab, remote_has_all(slab));
        }
        look->is_over = !look->at_once && ticks_now() - look->began_ticks > LOOK_TICKS;
    }
}

/* The caller holds the heap's lock. */
static void look_at_classes(struct heap *heap, struct look *look)
{
    look->began_ticks = ticks_now();
    heap->trim.parked = 0;
    for (unsigned class = 0; class < SIZE_CLASS_COUNT && !look->is_over; class++) {
        uint32_t keep = look->at_once ? 0 : heap->trim.reopened[class];
        heap->trim.reopened[class] /= 2;
        if (heap->partial[class] != 0)
            look_at_class(heap, class, keep, look);
    }
}

static void look_at_slabs(struct heap *heap, struct look *look)
{
    lock_take(&heap->lock);
    look_at_classes(heap, look);
    lock_drop(&heap->lock);
}

void heap_trim_all(struct heap *heap)
{
    struct look look = {.at_once = true, .trims = true};
    look_at_slabs(heap, &look);
}

void heap_trim_ended(void)
{
    for (struct heap *heap = heap_first(); heap != NULL; heap = heap->next) {
        struct look look = {.at_once = true, .trims = true};
        if (!atomic_load_explicit(&heap->idle, memory_order_relaxed))
            continue;
        lock_take(&heap->lock);
        /* A thread that takes the heap clears `idle` with this lock held. */
        if (atomic_load_explicit(&heap->idle, memory_order_relaxed))
            look_at_classes(heap, &look);
        lock_drop(&heap->lock);
    }
}

static bool is_much(size_t debt)
{
    size_t used = page_heap_level().use.used << SLICE_SHIFT;
    return debt >= DEBT_LEAST && debt >= used / DEBT_SHARE;
}

/* Counts a look that gave back little. After the third such look in a row, the heap waits for 1
 * epoch, after the fourth for 3 epochs, then for 7, and so on. */
static void wait_longer(struct heap_trim *trim)
{
    if (trim->fruitless < WAITS)
        trim->fruitless++;
    if (trim->fruitless > 2)
        trim->wait = (uint16_t)((1u << (trim->fruitless - 2)) - 1);
}

void heap_trim(struct heap *heap, bool is_quiet)
{
    struct heap_trim *trim = &heap->trim;
    uint32_t epoch = purge_epoch();
    if (epoch == trim->epoch)
        return;
    trim->epoch = epoch;
    if (is_quiet)
        heap_collect(heap);
    if (!is_quiet && trim->wait > 0) {
        trim->wait--;
        /* `due` stays set, so that a thread that becomes quiet during the wait still looks at what
         * was freed. */
        trim->due = trim->wait == 0 || trim->parked > HEAP_TRIM_SLICES;
        return;
    }
    struct look look = {.trims = is_quiet || trim->large_debt};
    look_at_slabs(heap, &look);
    trim->due = look.pending || look.is_over || look.given > 0;
    trim->large_debt = look.trims ? look.is_over : is_much(look.debt);
    if (look.given > look.debt / 8 || trim->large_debt)
        trim->fruitless = 0;
    else if (!is_quiet)
        wait_longer(trim);
}
