#include "alloc/emergency.h"

#include "os/os.h"

#include <stdatomic.h>
#include <string.h>

enum {
    ALIGNMENT = 16, /* of a block, and size of its header */
    MAPPING_BYTES = 1 << 18,
};

/* A mapping that blocks are cut from. Mappings stay on the list forever. Always:
 *
 *     state == BLOCK * number of blocks that were not freed + bytes used from the mapping's start
 */
#define BLOCK     (UINT64_C(1) << 44)
#define USED_MASK (BLOCK - 1)
struct mapping {
    struct mapping *next;
    size_t bytes;
    _Atomic uint64_t state;
};

/* Offset of the first block in a mapping. */
#define FIRST ((sizeof(struct mapping) + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1))

struct header {
    _Alignas(ALIGNMENT) size_t bytes; /* of the block behind the header */
    _Atomic size_t live;              /* ~bytes; 0 if the block was freed */
};
_Static_assert(sizeof(struct header) == ALIGNMENT, "a block behind a header is aligned");

static _Atomic(struct mapping *) mappings; /* the newest first */

/* Cuts `bytes` bytes, a multiple of ALIGNMENT, off a mapping. Returns NULL if it has too little
 * room, or too many blocks to count. */
static char *cut(struct mapping *mapping, size_t bytes)
{
    uint64_t state = atomic_load_explicit(&mapping->state, memory_order_relaxed);
    do
        if (bytes > mapping->bytes - (state & USED_MASK) || state + BLOCK + bytes < state)
            return NULL;
    while (!atomic_compare_exchange_weak_explicit(
        &mapping->state, &state, state + BLOCK + bytes,
        memory_order_acquire, /* sees that emergency_free() has cleared the memory */
        memory_order_relaxed));
    return (char *)mapping + (state & USED_MASK);
}

/* Cuts `bytes` bytes off the newest mapping that has room. Returns NULL if none has. */
static char *cut_any(size_t bytes)
{
    char *start = NULL;
    struct mapping *mapping = atomic_load_explicit(&mappings, memory_order_acquire);
    for (; mapping != NULL && start == NULL; mapping = mapping->next)
        start = cut(mapping, bytes);
    return start;
}

/* Adds a mapping with room for `bytes` bytes, and cuts these bytes off. Returns NULL if there is no
 * memory. */
static char *cut_new(size_t bytes)
{
    size_t page = os_page_bytes();
    size_t all = bytes + FIRST < MAPPING_BYTES ? MAPPING_BYTES : bytes + FIRST;
    all = (all + page - 1) & ~(page - 1);
    struct mapping *mapping = all <= USED_MASK ? os_map(all, 1, 0) : NULL;
    if (mapping == NULL)
        return NULL;
    mapping->bytes = all;
    atomic_store_explicit(&mapping->state, BLOCK + FIRST + bytes, memory_order_relaxed);
    mapping->next = atomic_load_explicit(&mappings, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(
        &mappings, &mapping->next, mapping,
        memory_order_release, /* publishes the fields to mapping_of() */
        memory_order_relaxed)) {
    }
    return (char *)mapping + FIRST;
}

/* Returns the mapping that `p` lies in, or NULL. */
static struct mapping *mapping_of(const void *p)
{
    struct mapping *mapping = atomic_load_explicit(&mappings, memory_order_acquire);
    while (mapping != NULL && (uintptr_t)p - (uintptr_t)mapping >= mapping->bytes)
        mapping = mapping->next;
    return mapping;
}

void *emergency_allocate(size_t size, size_t alignment)
{
    size_t spare = alignment > ALIGNMENT ? alignment - ALIGNMENT : 0;
    if (size > PTRDIFF_MAX / 4 || spare > PTRDIFF_MAX / 4)
        return NULL;
    size_t rounded = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    size_t bytes = sizeof(struct header) + spare + (rounded > 0 ? rounded : ALIGNMENT);
    char *start = cut_any(bytes);
    if (start == NULL)
        start = cut_new(bytes);
    if (start == NULL)
        return NULL;
    uintptr_t lowest = (uintptr_t)start + sizeof(struct header);
    size_t head = alignment > ALIGNMENT ? (alignment - lowest % alignment) % alignment : 0;
    struct header *header = (struct header *)(start + head);
    header->bytes = bytes - sizeof *header - head;
    atomic_store_explicit(&header->live, ~header->bytes, memory_order_relaxed);
    return header + 1;
}

void emergency_free(void *p)
{
    struct mapping *mapping = mapping_of(p);
    if ((uintptr_t)p % ALIGNMENT != 0 || (char *)p < (char *)mapping + FIRST + ALIGNMENT)
        return; /* no block */
    struct header *header = (struct header *)p - 1;
    size_t live = ~header->bytes;
    if (!atomic_compare_exchange_strong_explicit(&header->live, &live, 0, memory_order_relaxed,
                                                 memory_order_relaxed))
        return; /* the block was freed twice, or is none */
    uint64_t state = atomic_load_explicit(&mapping->state, memory_order_acquire);
    uint64_t after;
    do {
        after = state - BLOCK;
        if (after < BLOCK) {
            /* All other blocks were freed before. If another thread cuts a block now, it lies
             * behind the cleared bytes, and the exchange fails. */
            memset((char *)mapping + FIRST, 0, (state & USED_MASK) - FIRST);
            after = FIRST;
        }
    } while (!atomic_compare_exchange_weak_explicit(&mapping->state, &state, after,
                                                    memory_order_acq_rel, memory_order_acquire));
}

bool emergency_owns(const void *p)
{
    return mapping_of(p) != NULL;
}

size_t emergency_bytes(const void *p)
{
    return ((const struct header *)p - 1)->bytes;
}
