#include "alloc/large.h"

#include "alloc/purge.h"

static void *made(size_t index, size_t slices)
{
    if (index == 0)
        return NULL;
    struct slab *slab = slab_at(index);
    slab->slices = (uint32_t)slices;
    slab->kind = RUN_LARGE;
    return region_address(index);
}

static bool too_large(size_t bytes)
{
    return bytes > (size_t)REGION_SLICES_MAX << SLICE_SHIFT;
}

void *large_allocate(size_t size, size_t alignment, bool *zero)
{
    if (too_large(size) || too_large(alignment))
        return NULL;
    size_t slices = size == 0 ? 1 : large_slices(size);
    return made(alignment <= SLICE_BYTES ? page_heap_allocate(slices, 0, zero)
                                         : page_heap_allocate_aligned(slices, alignment, zero),
                slices);
}

void *large_allocate_to_grow(size_t size)
{
    if (too_large(size))
        return NULL;
    bool zero;
    size_t slices = large_slices(size);
    return made(page_heap_allocate(slices, slices, &zero), slices);
}

void large_free(struct slab *slab)
{
    size_t slices = slab->slices;
    slab->kind = RUN_NONE;
    atomic_store_explicit(&slab->owner, NULL, memory_order_relaxed);
    purge_free(slab_index(slab), slices);
}

bool large_resize(struct slab *slab, size_t size)
{
    size_t index = slab_index(slab);
    size_t have = slab->slices;
    size_t want = large_slices(size);
    if (want == 0 || want > REGION_SLICES_MAX)
        return false;
    bool zero;
    if (want > have && !page_heap_extend(index, have, want - have, &zero))
        return false;
    slab->slices = (uint32_t)want;
    if (want < have)
        purge_free(index + want, have - want);
    return true;
}
