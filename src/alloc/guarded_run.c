#include "alloc/guarded_run.h"

#include "alloc/hardening.h"
#include "alloc/slab.h"
#include "os/os.h"

enum {
    DENSE_SLICES = (40 << 20) / SLICE_BYTES,
    DENSE_SHARE = 32,
    SPARSE_SHARE = 16 * CHUNK_SLICES
};

static _Atomic size_t runs;
static _Atomic size_t guards;

/* Returns the most guards that may follow slabs in a region of `slices` slices. guarded_run.h gives
 * the reason for the two shares. */
static size_t guards_most(size_t slices)
{
    return slices <= DENSE_SLICES
               ? slices / DENSE_SHARE
               : DENSE_SLICES / DENSE_SHARE + (slices - DENSE_SLICES) / SPARSE_SHARE;
}

/* Returns whether a guard follows the next slab. If several threads call this function at the same
 * time, there may be one guard more than guards_most() for each of them. */
static bool is_due(void)
{
    size_t number = atomic_fetch_add_explicit(&runs, 1, memory_order_relaxed);
    size_t slices = atomic_load_explicit(&region.slices, memory_order_relaxed);
    return number % GUARDED_RUN_EVERY == GUARDED_RUN_EVERY - 1 && os_page_bytes() <= SLICE_BYTES &&
           atomic_load_explicit(&guards, memory_order_relaxed) < guards_most(slices);
}

static void set_guard(size_t index)
{
    atomic_store_explicit(&slab_at(index)->kind, RUN_OWN, memory_order_relaxed);
    if (os_page_bytes() <= SLICE_BYTES)
        os_guard(region_address(index), SLICE_BYTES);
}

size_t guarded_run_for_slab(size_t slices, bool *zero)
{
    size_t index = CAIRN_HARDENED && is_due() ? page_heap_allocate(slices + 1, 0, zero) : 0;
    if (index == 0)
        return page_heap_allocate(slices, 0, zero);
    set_guard(index + slices);
    atomic_fetch_add_explicit(&guards, 1, memory_order_relaxed);
    return index;
}

size_t guarded_run_for_us(size_t slices, bool *zero)
{
    if (!CAIRN_HARDENED)
        return page_heap_allocate(slices, 0, zero);
    size_t index = page_heap_allocate(slices + 2, 0, zero);
    if (index == 0)
        return 0;
    set_guard(index);
    set_guard(index + 1 + slices);
    return index + 1;
}
