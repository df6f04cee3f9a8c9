#include "alloc/emergency.h"

#include "os/os.h"

#include <stdatomic.h>

enum {
    ALIGNMENT = 16, /* of a block, and size of its header */
    MAPPING_BYTES = 1 << 18,
};

/* A mapping that blocks are cut from. Mappings stay on the list forever. */
struct mapping {
    struct mapping *next;
    size_t bytes;
    _Atomic size_t used; /* from the start of the mapping; may exceed `bytes` */
};

struct header {
    _Alignas(ALIGNMENT) size_t bytes; /* of the block behind the header */
};
_Static_assert(sizeof(struct header) == ALIGNMENT, "a block behind a header is aligned");

static _Atomic(struct mapping *) mappings; /* the newest first */

/* Cuts `bytes` bytes, a multiple of ALIGNMENT, off a mapping. Returns NULL if it has too little
 * room. */
static char *cut(struct mapping *mapping, size_t bytes)
{
    size_t used = atomic_load_explicit(&mapping->used, memory_order_relaxed);
    do
        if (bytes > mapping->bytes - used)
            return NULL;
    while (!atomic_compare_exchange_weak_explicit(&mapping->used, &used, used + bytes,
                                                  memory_order_relaxed, memory_order_relaxed));
    return (char *)mapping + used;
}

/* Adds a mapping with room for `bytes` bytes, and cuts them off. Returns NULL if the machine
 * refuses. */
static char *cut_new(size_t bytes)
{
    size_t page = os_page_bytes();
    size_t first = (sizeof(struct mapping) + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    size_t all = bytes + first < MAPPING_BYTES ? MAPPING_BYTES : bytes + first;
    all = (all + page - 1) & ~(page - 1);
    struct mapping *mapping = os_map(all, 1, 0);
    if (mapping == NULL)
        return NULL;
    mapping->bytes = all;
    atomic_store_explicit(&mapping->used, first + bytes, memory_order_relaxed);
    mapping->next = atomic_load_explicit(&mappings, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(
        &mappings, &mapping->next, mapping,
        memory_order_release, /* publishes the fields to emergency_owns() */
        memory_order_relaxed)) {
    }
    return (char *)mapping + first;
}

void *emergency_allocate(size_t size, size_t alignment)
{
    size_t spare = alignment > ALIGNMENT ? alignment - ALIGNMENT : 0;
    if (size > PTRDIFF_MAX / 4 || spare > PTRDIFF_MAX / 4)
        return NULL;
    size_t rounded = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    size_t bytes = sizeof(struct header) + spare + (rounded > 0 ? rounded : ALIGNMENT);
    struct mapping *newest = atomic_load_explicit(&mappings, memory_order_acquire);
    char *start = newest != NULL ? cut(newest, bytes) : NULL;
    if (start == NULL)
        start = cut_new(bytes);
    if (start == NULL)
        return NULL;
    uintptr_t lowest = (uintptr_t)start + sizeof(struct header);
    size_t head = alignment > ALIGNMENT ? (alignment - lowest % alignment) % alignment : 0;
    struct header *header = (struct header *)(start + head);
    header->bytes = bytes - sizeof *header - head;
    return header + 1;
}

bool emergency_owns(const void *p)
{
    for (const struct mapping *mapping = atomic_load_explicit(&mappings, memory_order_acquire);
         mapping != NULL; mapping = mapping->next)
        if ((uintptr_t)p - (uintptr_t)mapping < mapping->bytes)
            return true;
    return false;
}

size_t emergency_bytes(const void *p)
{
    return ((const struct header *)p - 1)->bytes;
}
