#include "instructions/blocks.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum {
    GRANULE_SHIFT = 4,
    PAGE_SHIFT = 12,
    LEAF_SHIFT = 30,
    LEAVES = 1 << (47 - LEAF_SHIFT),
    NOTED = 1,
    READ = 2,        /* of a page: is_mapped_anew() has read a byte of it */
    GROUP_SHIFT = 1, /* of a block's first granule: shift of the size group */
};

struct leaf {
    uint8_t granules[1 << (LEAF_SHIFT - GRANULE_SHIFT)];
    uint8_t pages[1 << (LEAF_SHIFT - PAGE_SHIFT)];
};

static _Atomic(struct leaf *) leaves[LEAVES];

/* Returns the leaf of an address, or NULL if there is no memory for it. */
static struct leaf *leaf_of(uintptr_t address)
{
    _Atomic(struct leaf *) *place = &leaves[(address >> LEAF_SHIFT) % LEAVES];
    struct leaf *leaf = atomic_load(place);
    if (leaf != NULL)
        return leaf;
    void *memory = mmap(NULL, sizeof *leaf, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (atomic_compare_exchange_strong(place, &leaf, memory))
        return memory;
    munmap(memory, sizeof *leaf);
    return leaf;
}

static uint8_t *granule_of(struct leaf *leaf, uintptr_t address)
{
    return &leaf->granules[(address >> GRANULE_SHIFT) % COUNT_OF(leaf->granules)];
}

static uint8_t *page_of(struct leaf *leaf, uintptr_t address)
{
    return &leaf->pages[(address >> PAGE_SHIFT) % COUNT_OF(leaf->pages)];
}

/* Notes the granules of [start, end). Pages that lie wholly inside get one byte. */
static void note(uintptr_t start, uintptr_t end)
{
    const uintptr_t page_bytes = (uintptr_t)1 << PAGE_SHIFT;
    for (uintptr_t at = start, next; at < end; at = next) {
        struct leaf *leaf = leaf_of(at);
        bool whole = at % page_bytes == 0 && end - at >= page_bytes;
        next = at + (whole ? page_bytes : (uintptr_t)1 << GRANULE_SHIFT);
        if (leaf != NULL)
            *(whole ? page_of(leaf, at) : granule_of(leaf, at)) |= NOTED;
    }
}

/* Reads a byte of the second page of a large block, so that this page is in memory from now on.
 * Returns true if an earlier call has read the page, and the page was not in memory before this
 * call: the allocator has mapped it anew or given it back. */
static bool is_mapped_anew(uintptr_t start, size_t bytes)
{
    const uintptr_t page_bytes = (uintptr_t)1 << PAGE_SHIFT;
    uintptr_t second = (start + 2 * page_bytes - 1) & ~(page_bytes - 1);
    struct leaf *leaf = leaf_of(second);
    unsigned char in_memory;
    if (path_group(bytes) != SIZE_LARGE || leaf == NULL ||
        mincore((void *)second, page_bytes, &in_memory) != 0)
        return false;
    bool was_read = (*page_of(leaf, second) & READ) != 0;
    *page_of(leaf, second) |= READ;
    (void)*(volatile const char *)second;
    return was_read && (in_memory & 1) == 0;
}

enum path blocks_add(const void *block, size_t bytes)
{
    uintptr_t start = (uintptr_t)block;
    if (block == NULL)
        return PATH_UNTOLD;
    struct leaf *leaf = leaf_of(start);
    if (leaf == NULL)
        return PATH_REUSED;
    uint8_t *first = granule_of(leaf, start);
    bool is_noted = ((*first | *page_of(leaf, start)) & NOTED) != 0;
    enum path path = is_mapped_anew(start, bytes) || !is_noted ? PATH_NEW : PATH_REUSED;
    note(start, start + (bytes != 0 ? bytes : 1));
    *first = (uint8_t)(NOTED | path_group(bytes) << GROUP_SHIFT);
    return path;
}

enum size_group blocks_group(const void *block)
{
    struct leaf *leaf = leaf_of((uintptr_t)block);
    return leaf != NULL ? (enum size_group)(*granule_of(leaf, (uintptr_t)block) >> GROUP_SHIFT)
                        : SIZE_SMALL;
}
