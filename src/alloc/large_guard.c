#include "alloc/large_guard.h"

#include "alloc/hardening.h"
#include "os/os.h"

#include <string.h>

/* Returns the bytes of the guard before a block. */
static size_t bytes_before(size_t alignment)
{
    size_t page = os_page_bytes();
    return alignment <= page && page < SLICE_BYTES ? page : 0;
}

size_t large_guard_room(size_t size, size_t alignment)
{
    size_t room;
    size_t guards = bytes_before(alignment) + os_page_bytes();
    return __builtin_add_overflow(size, guards, &room) ? SIZE_MAX : room;
}

size_t large_guard_alignment(const struct slab *slab)
{
    return large_guard_block(slab) == slab_start(slab) ? SLICE_BYTES : 1;
}

/* The bytes behind a block: `filled` bytes from its end on, and then `guard` bytes. */
struct behind {
    unsigned char *start;
    size_t filled;
    size_t guard;
};

static struct behind behind(const struct slab *slab)
{
    size_t page = os_page_bytes();
    unsigned char *start = (unsigned char *)large_guard_block(slab) + large_guard_size(slab);
    size_t left =
        (size_t)slab->slices * SLICE_BYTES - (size_t)(start - (unsigned char *)slab_start(slab));
    size_t filled = (size_t)-(uintptr_t)start & (page - 1);
    if (filled > left)
        filled = left;
    return (struct behind){start, filled, (left - filled) & ~(page - 1)};
}

void *large_guard_set(struct slab *slab, size_t size, size_t alignment)
{
    size_t before = bytes_before(alignment);
    atomic_store_explicit(&slab->until, (uint32_t)before, memory_order_relaxed);
    atomic_store_explicit(&slab->posted, size, memory_order_relaxed);
    struct behind rest = behind(slab);
    memset(rest.start, HARDENING_FILL, rest.filled);
    if (before > 0)
        os_guard(slab_start(slab), before);
    if (rest.guard > 0)
        os_guard(rest.start + rest.filled, rest.guard);
    return large_guard_block(slab);
}

bool large_guard_holds(const struct slab *slab)
{
    struct behind rest = behind(slab);
    for (size_t i = 0; i < rest.filled; i++)
        if (UNLIKELY(rest.start[i] != HARDENING_FILL))
            return false;
    return true;
}

void large_guard_remove(struct slab *slab)
{
    struct behind rest = behind(slab);
    size_t before = (size_t)((char *)large_guard_block(slab) - slab_start(slab));
    if (before > 0)
        os_unguard(slab_start(slab), before);
    if (rest.guard > 0)
        os_unguard(rest.start + rest.filled, rest.guard);
    memset(rest.start, 0, rest.filled);
}

void large_guard_wipe(struct slab *slab)
{
    memset(large_guard_block(slab), 0, large_guard_size(slab));
}
