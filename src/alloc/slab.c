#include "alloc/slab.h"

#include "alloc/block_map.h"
#include "alloc/broken.h"
#include "alloc/hardening.h"
#include "base/random.h"
#include "os/os.h"

#include <string.h>

uintptr_t slab_secret;

struct slab *slab_create(size_t index, unsigned class, struct heap *owner, bool zero)
{
    struct slab *slab = slab_at(index);
    size_t slices = slab_slices(class);
    slab->free = NULL;
    atomic_store_explicit(&slab->until, 0, memory_order_relaxed);
    atomic_store_explicit(&slab->rest, 0, memory_order_relaxed);
    atomic_store_explicit(&slab->posted, 0, memory_order_relaxed);
    slab->next = slab->prev = 0;
    atomic_store_explicit(&slab->slices, (uint32_t)slices, memory_order_relaxed);
    slab->capacity = (uint16_t)(slices * SLICE_BYTES / size_class_bytes(class));
    atomic_store_explicit(&slab->carved, 0, memory_order_relaxed);
    atomic_store_explicit(&slab->bound, 0, memory_order_relaxed);
    slab->inverse = (uint32_t)((UINT64_C(1) << 32) / size_class_bytes(class)) + 1;
    /* Atomic, because huge_page_collapse.c may be reading it. */
    __atomic_store_n(&slab->class, (uint8_t)class, __ATOMIC_RELAXED);
    slab->zero = zero;
    slab->seen = 0;
    atomic_store_explicit(&slab->away, 0, memory_order_relaxed);
    /* Publishes the fields above to remote_is_slab(). */
    atomic_store_explicit(&slab->kind, RUN_SLAB, memory_order_release);
    for (size_t i = 1; i < slices; i++) {
        struct slab *tail = slab_at(index + i);
        tail->back = (uint32_t)i;
        atomic_store_explicit(&tail->kind, RUN_TAIL, memory_order_relaxed);
    }
    atomic_store_explicit(&slab->owner, owner, memory_order_release);
    return slab;
}

void slab_misused(const char *what, const void *p)
{
    size_t index = region_index(p);
    if (!region_has(index))
        broken_by_misuse(what, p, NULL, 0);
    const struct slab *slab = slab_at(index);
    if (slab->kind == RUN_TAIL)
        slab -= slab->back;
    if (slab->kind == RUN_SLAB)
        broken_by_misuse(what, p, "size class", size_class_bytes(slab->class));
    if (slab->kind == RUN_LARGE || slab->kind == RUN_CACHED)
        broken_by_misuse(what, p, "bytes", (size_t)slab->slices << SLICE_SHIFT);
    broken_by_misuse(what, p, NULL, 0);
}

bool slab_has_block(const struct slab *slab, const void *p)
{
    size_t offset = (size_t)((const char *)p - slab_start(slab));
    if (LIKELY(slab_begins(slab, (uint32_t)offset))) /* this needs no division */
        return true;
    return offset < slab_end(slab) && offset % size_class_bytes(slab->class) == 0;
}

/* Returns what `bound` is while no page of the slab is away. */
static uint32_t bound_of(const struct slab *slab)
{
    return slab->carved * (slab->inverse * (uint32_t)size_class_bytes(slab->class));
}

void slab_set_away(struct slab *slab, uint32_t away)
{
    atomic_store_explicit(&slab->away, away, memory_order_relaxed);
    atomic_store_explicit(&slab->bound, away == 0 ? bound_of(slab) : 0, memory_order_relaxed);
}

bool slab_is_hidden(const struct slab *slab, size_t offset)
{
    uint32_t away = slab_away(slab);
    return away != 0 && (away >> offset / os_page_bytes() & 1) != 0;
}

uint32_t slab_first_on(const struct slab *slab, unsigned page)
{
    size_t bytes = size_class_bytes(slab->class);
    size_t number = (page * os_page_bytes() + bytes - 1) / bytes;
    return number < slab->carved ? (uint32_t)number : slab->carved;
}

uint32_t slab_hidden(const struct slab *slab)
{
    uint32_t count = 0;
    for (uint32_t left = slab_away(slab); left != 0; left &= left - 1) {
        unsigned page = (unsigned)__builtin_ctz(left);
        count += slab_first_on(slab, page + 1) - slab_first_on(slab, page);
    }
    return count;
}

void slab_is_free(const struct slab *slab)
{
    size_t bytes = size_class_bytes(slab->class);
    const char *end = slab_start(slab) + slab_end(slab);
    for (const char *at = slab_start(slab); at < end; at += bytes)
        if (UNLIKELY(!slab_is_marked((const struct block *)at)) &&
            !slab_is_hidden(slab, (size_t)(at - slab_start(slab))))
            slab_misused("a free block was written to, or one was freed twice", at);
}

/* Makes the memory of a slab whose blocks are all free read as zero (hardening.h), and forgets its
 * blocks. Ends the program if one was written to. */
static void clear_free_blocks(const struct slab *slab)
{
    size_t bytes = size_class_bytes(slab->class);
    char *end = slab_start(slab) + slab_end(slab);
    for (char *at = slab_start(slab); at < end; at += bytes) {
        if (UNLIKELY(!hardening_is_zero(at + sizeof(struct block),
                                        bytes - CANARY_BYTES - sizeof(struct block))))
            slab_misused("a block was written to after it was freed", at);
        *(struct block *)at = (struct block){0};
        *(uint64_t *)(at + bytes - CANARY_BYTES) = 0;
    }
    block_map_clear(slab_start(slab), slab_end(slab));
}

struct slab *slab_wipe(struct slab *slab)
{
    if (CAIRN_HARDENED)
        memset(slab_start(slab), 0, slab_end(slab));
    return slab;
}

void slab_destroy(struct slab *slab)
{
    size_t index = slab_index(slab);
    if (CAIRN_HARDENED) {
        clear_free_blocks(slab);
        atomic_store_explicit(&slab->end, 0, memory_order_relaxed);
    }
    /* `seen` and `away` share their bytes with `moved` and `slack` of a large block. The next run
     * that begins here is not moved and has no slack. */
    slab->seen = 0;
    atomic_store_explicit(&slab->away, 0, memory_order_relaxed);
    atomic_store_explicit(&slab->owner, NULL, memory_order_relaxed);
    for (size_t i = 0; i < slab->slices; i++)
        atomic_store_explicit(&slab_at(index + i)->kind, RUN_NONE, memory_order_relaxed);
}

/* Counts newly carved blocks as live. */
static void count_live(struct slab *slab, uint32_t more)
{
    uint32_t until = atomic_load_explicit(&slab->until, memory_order_relaxed);
    atomic_store_explicit(&slab->until, until + more, memory_order_relaxed);
}

enum { NEIGHBOURS = 16 }; /* at most 256, because the elements of `order` are bytes */

/* Links `count` new blocks of `bytes` bytes from `start` on, and writes their canaries. The order
 * of each NEIGHBOURS blocks is random. Larger groups would be harder to foresee, but a program that
 * uses its blocks in the order of allocation would miss the processor's caches more often. Returns
 * the first block of the list. `zero` says that the memory reads as zero. */
static struct block *link_at_random(char *start, size_t bytes, uint32_t count, bool zero)
{
    if (!zero)
        memset(start, 0, count * bytes);
    static _Atomic uint64_t seed;
    uint64_t state = atomic_load_explicit(&seed, memory_order_relaxed);
    struct random random = random_of(state ^ os_random() ^ (uintptr_t)start);
    struct block *first = NULL;
    struct block *last = NULL;
    for (uint32_t from = 0; from < count; from += NEIGHBOURS) {
        uint32_t most = count - from < NEIGHBOURS ? count - from : NEIGHBOURS;
        uint8_t order[NEIGHBOURS] = {0};
        for (uint32_t i = 0; i < most; i++) { /* every order is equally likely */
            uint32_t place = (uint32_t)random_below(&random, i + 1);
            order[i] = order[place];
            order[place] = (uint8_t)i;
        }
        for (uint32_t i = 0; i < most; i++) {
            struct block *block = (struct block *)(start + (from + order[i]) * bytes);
            canary_write((char *)block + bytes, CANARY_FREE);
            block_map_set(block, BLOCK_NEW);
            if (last != NULL)
                slab_mark(last, block);
            else
                first = block;
            last = block;
        }
    }
    slab_mark(last, NULL);
    atomic_store_explicit(&seed, random_next(&random), memory_order_relaxed);
    return first;
}

/* Links `count` new blocks of `bytes` bytes from `start` on in the order of their addresses. */
static struct block *link_in_order(char *start, size_t bytes, uint32_t count)
{
    char *next = start;
    for (uint32_t i = 1; i < count; i++, next += bytes)
        slab_mark((struct block *)next, (struct block *)(next + bytes));
    slab_mark((struct block *)next, NULL);
    return (struct block *)start;
}

struct block *slab_carve(struct slab *slab, uint32_t *count)
{
    enum { USED_LEAST = 8 }; /* blocks in a slab on used memory */
    size_t bytes = size_class_bytes(slab->class);
    char *next = slab_start(slab) + slab_end(slab);
    size_t page = os_page_bytes();
    /* End of the OS page in which the next block ends. */
    char *page_end = (char *)(((uintptr_t)next + bytes + page - 1) & ~(page - 1));
    uint32_t most = (uint32_t)((size_t)(page_end - next) / bytes);
    if (CAIRN_HARDENED && most < HARDENING_CARVED_LEAST)
        most = HARDENING_CARVED_LEAST; /* a few blocks have only a few orders */
    if (!slab->zero && most < USED_LEAST)
        most = USED_LEAST; /* pages of used memory are resident already */
    if (most > (uint32_t)(slab->capacity - slab->carved))
        most = (uint32_t)(slab->capacity - slab->carved);
    *count = most;
    if (most == 0)
        return NULL;
    struct block *first = CAIRN_HARDENED ? link_at_random(next, bytes, most, slab->zero != 0)
                                         : link_in_order(next, bytes, most);
    atomic_store_explicit(&slab->carved, (uint16_t)(slab->carved + most), memory_order_relaxed);
    atomic_store_explicit(&slab->bound, bound_of(slab), memory_order_relaxed);
    count_live(slab, most);
    return first;
}

void slab_take_back(struct slab *slab, struct block *first, uint32_t count)
{
    struct block *last = first;
    for (uint32_t i = 1;; i++) {
        if (UNLIKELY(!slab_is_marked(last)))
            slab_misused("a free block was written to", last);
        if (i == count || last->next == NULL)
            break;
        last = last->next;
    }
    if (UNLIKELY(last->next != NULL))
        slab_misused("a block is freed twice, the last time by another thread", last);
    slab_mark(last, slab->free);
    slab->free = first;
    uint32_t until = atomic_load_explicit(&slab->until, memory_order_relaxed);
    uint32_t rest = atomic_load_explicit(&slab->rest, memory_order_relaxed);
    atomic_store_explicit(&slab->rest, 0, memory_order_relaxed);
    atomic_store_explicit(&slab->until, until + rest - count, memory_order_release);
}

void slab_check(struct slab *slab)
{
    CHECK_THAT(slab->kind == RUN_SLAB);
    CHECK_THAT(slab->slices == slab_slices(slab->class));
    CHECK_THAT(slab->carved <= slab->capacity);
    CHECK_THAT(slab->bound == (slab_away(slab) == 0 ? bound_of(slab) : 0));
    CHECK_THAT(slab_live(slab) <= slab->carved);
    uint32_t free = 0;
    for (struct block *block = slab->free; block != NULL; block = block->next) {
        CHECK_THAT(slab_has_block(slab, block));
        CHECK_THAT(slab_is_marked(block));
        CHECK_THAT(++free <= slab->carved);
    }
    /* Hidden blocks count as live while the slab is CURRENT. */
    uint32_t not_live = slab->carved - slab_live(slab);
    CHECK_THAT(free == not_live || free + slab_hidden(slab) == not_live);
}
