#include "alloc/large.h"

#include "alloc/block_map.h"
#include "alloc/hardening.h"
#include "alloc/huge_page_collapse.h"
#include "alloc/huge_page_unasked.h"
#include "alloc/large_guard.h"
#include "alloc/purge.h"
#include "alloc/site.h"
#include "os/os.h"

/* Turns a run of the page heap into a large block, and returns the block. Returns NULL if `index`
 * is 0. */
static void *make_block(size_t index, size_t slices)
{
    if (index == 0)
        return NULL;
    struct slab *slab = slab_at(index);
    slab->slack = 0;
    slab->place = 0;
    if (CAIRN_HARDENED)
        atomic_store_explicit(&slab->end, LARGE_OPEN, memory_order_relaxed);
    atomic_store_explicit(&slab->slices, (uint32_t)slices, memory_order_relaxed);
    /* Release order publishes `slices` to a walk. */
    atomic_store_explicit(&slab->kind, RUN_LARGE, memory_order_release);
    return region_address(index);
}

void *large_allocate(size_t size, size_t alignment, bool *zero)
{
    if (large_is_impossible(size) || large_is_impossible(alignment))
        return NULL;
    size_t slices = size == 0 ? 1 : large_slices(size);
    size_t index = alignment <= SLICE_BYTES ? page_heap_allocate(slices, 0, zero)
                                            : page_heap_allocate_aligned(slices, alignment, zero);
    void *block = make_block(index, slices);
    if (slices >= CHUNK_SLICES && block != NULL)
        huge_page_collapse_reused(index, slices);
    if (block != NULL)
        purge_for_growth(slices);
    return block;
}

void *large_reuse(struct slab *run, size_t slack)
{
    /* A run with guards must not become a huge page. */
    bool has_guards = CAIRN_HARDENED && run->end != LARGE_OPEN;
    if (run->slices >= CHUNK_SLICES && !has_guards) {
        page_heap_count_reuse(slab_index(run), run->slices);
        huge_page_collapse_reused(slab_index(run), run->slices);
    }
    run->slack = (uint32_t)slack;
    /* Release order publishes `slack` to a walk. */
    atomic_store_explicit(&run->kind, RUN_LARGE, memory_order_release);
    return slab_start(run);
}

void *large_allocate_to_grow(size_t size)
{
    if (large_is_impossible(size))
        return NULL;
    bool zero;
    size_t slices = large_slices(size);
    void *block = make_block(page_heap_allocate(slices, slices, &zero), slices);
    if (block != NULL)
        purge_for_growth(slices);
    return block;
}

/* --- moved blocks ----------------------------------------------------------------------------- */

enum {
    MOVE_SLICES_MIN = 64, /* below 1 MiB, copying is as fast as moving pages */
    /* At most this many moved blocks live at once. Each of them is a mapping of its own, and Linux
     * allows a process only 65,530 mappings by default. */
    MOVED_MAX = 1000,
};

static _Atomic uint32_t moved_count;

bool (*large_may_move)(void);

static bool may_move(void)
{
    return large_may_move == NULL || large_may_move();
}

/* Counts one more moved block. Returns false if there are MOVED_MAX already. */
static bool count_moved(void)
{
    if (atomic_fetch_add_explicit(&moved_count, 1, memory_order_relaxed) < MOVED_MAX)
        return true;
    atomic_fetch_sub_explicit(&moved_count, 1, memory_order_relaxed);
    return false;
}

/* Stops counting the block as a moved one. */
static void count_not_moved(struct slab *slab)
{
    if (slab->moved)
        atomic_fetch_sub_explicit(&moved_count, 1, memory_order_relaxed);
    slab->moved = false;
}

/* The kernel has unmapped these slices, or may have unmapped a part of them. They count as used
 * forever. */
static void lose(size_t index, size_t slices)
{
    for (size_t i = 0; i < slices; i++)
        atomic_store_explicit(&slab_at(index + i)->kind, RUN_LOST, memory_order_relaxed);
}

void *large_move(struct slab *slab, size_t size)
{
    size_t from = slab_index(slab);
    size_t have = slab->slices;
    size_t want = large_slices(size);
    if (have < MOVE_SLICES_MIN || large_is_impossible(size) || os_page_bytes() > SLICE_BYTES ||
        !may_move() || !count_moved())
        return NULL;
    size_t to = page_heap_begin_move(from, have, want);
    enum os_moved moved = to == 0 ? OS_NOT_MOVED
                                  : os_move(region_address(from), have << SLICE_SHIFT,
                                            region_address(to), want << SLICE_SHIFT);
    if (moved == OS_NOT_MOVED || moved == OS_NOT_MOVED_TO_LOST) {
        atomic_fetch_sub_explicit(&moved_count, 1, memory_order_relaxed);
        if (moved == OS_NOT_MOVED_TO_LOST)
            lose(to, want);
        if (to != 0)
            page_heap_end_move(have, to, moved == OS_NOT_MOVED ? want : 0);
        return NULL;
    }
    if (UNLIKELY(site_is_counted()))
        site_give_back(slab);
    count_not_moved(slab);
    atomic_store_explicit(&slab->kind, RUN_NONE, memory_order_relaxed);
    atomic_store_explicit(&slab->owner, NULL, memory_order_relaxed);
    if (moved == OS_MOVED_FROM_LOST)
        lose(from, have);
    page_heap_end_move(have, from, moved == OS_MOVED ? have : 0);
    slab_at(to)->moved = true;
    return make_block(to, want);
}

/* --- giving back, and resizing in place ------------------------------------------------------- */

/* Returns whether a range is known to be mapped. A sandbox may kill the process for asking. */
static bool is_mapped(void *start, size_t bytes)
{
    size_t resident;
    return huge_page_may_ask != NULL && huge_page_may_ask() &&
           os_count_resident(start, bytes, &resident);
}

/* Gives slices back. The slices of a moved block are first renewed (os_renew()), so that they
 * become part of the mapping around them. The kernel refuses that for locked memory, for example.
 * The slices then stay idle if all of them are known to be still mapped, and are lost otherwise.
 * `emptied` says that no page of them is resident. */
static void release(bool moved, bool emptied, size_t index, size_t slices)
{
    void *start = region_address(index);
    bool renewed = moved && os_renew(start, slices << SLICE_SHIFT);
    if (renewed || (emptied && !moved))
        page_heap_free_clean(index, slices, renewed);
    else if (!moved || is_mapped(start, slices << SLICE_SHIFT))
        purge_free(index, slices);
    else
        lose(index, slices);
}

void large_free(struct slab *slab)
{
    if (CAIRN_HARDENED && slab->kind == RUN_LARGE &&
        block_map_state(large_guard_block(slab)) == BLOCK_LIVE) {
        /* heap_destroy() frees a block that is still live. */
        block_map_set(large_guard_block(slab), BLOCK_FREE);
    }
    bool emptied = CAIRN_HARDENED && large_guard_open(slab);
    if (UNLIKELY(site_is_counted()))
        site_give_back(slab); /* needed only if heap_destroy() calls this */
    atomic_store_explicit(&slab->kind, RUN_NONE, memory_order_relaxed);
    atomic_store_explicit(&slab->owner, NULL, memory_order_relaxed);
    bool moved = slab->moved;
    count_not_moved(slab); /* before release(), which gives the record away */
    release(moved, emptied && !moved, slab_index(slab), slab->slices);
}

/* Takes `more` free slices behind the block. Returns false if they are not free, or the kernel
 * refuses. */
static bool extend(struct slab *slab, size_t index, size_t more)
{
    bool zero;
    size_t have = slab->slices;
    if ((slab->moved && !may_move()) || !page_heap_extend(index, have, more, &zero))
        return false;
    if (!slab->moved)
        return true;
    enum os_lengthened longer =
        os_lengthen(region_address(index), have << SLICE_SHIFT, more << SLICE_SHIFT);
    if (longer == OS_NOT_LENGTHENED)
        page_heap_free_clean(index + have, more, true);
    if (longer == OS_NOT_LENGTHENED_BEHIND_LOST)
        lose(index + have, more);
    return longer == OS_LENGTHENED;
}

bool large_resize(struct slab *slab, size_t size)
{
    size_t index = slab_index(slab);
    size_t have = slab->slices;
    size_t want = large_slices(size);
    if (want == 0 || want > REGION_SLICES_MAX)
        return false;
    /* `slack` counts the slices that were not requested. The block keeps all its slices if `slack`
     * does not grow. Only a block of more than RUN_CACHE_RUN_MAX slices has slack. */
    if (want <= have && have > RUN_CACHE_RUN_MAX && have - want <= slab->slack) {
        slab->slack = (uint32_t)(have - want);
        return true;
    }
    if (want > have && !extend(slab, index, want - have))
        return false;
    atomic_store_explicit(&slab->slices, (uint32_t)want, memory_order_relaxed);
    slab->slack = 0;
    if (UNLIKELY(site_is_counted()))
        site_resize(slab, have);
    if (want < have)
        release(slab->moved, false, index + want, have - want);
    return true;
}
