#include "alloc/slab_trim.h"

#include "alloc/hardening.h"
#include "alloc/page_heap.h"
#include "os/os.h"

enum {
    BLOCKS_MAX = SLICE_BYTES / 16, /* a slab of 16-byte blocks has the most blocks */
    AWAY_BITS = 32,
};
_Static_assert(SIZE_CLASS_BYTES_MAX * 4 / 4096 <= AWAY_BITS, "a bit for each page of a slab");

static void add_live(struct slab *slab, uint32_t more)
{
    uint32_t until = atomic_load_explicit(&slab->until, memory_order_relaxed);
    atomic_store_explicit(&slab->until, until + more, memory_order_release);
}

void slab_count_hidden(struct slab *slab)
{
    if (UNLIKELY(slab_away(slab) != 0))
        add_live(slab, slab_hidden(slab));
}

void slab_uncount_hidden(struct slab *slab)
{
    if (UNLIKELY(slab_away(slab) != 0))
        add_live(slab, -slab_hidden(slab));
}

struct block *slab_restore(struct slab *slab, uint32_t *count)
{
    uint32_t away = slab_away(slab);
    if (LIKELY(away == 0))
        return NULL;
    size_t bytes = size_class_bytes(slab->class);
    unsigned page = (unsigned)__builtin_ctz(away);
    uint32_t number = slab_first_on(slab, page);
    *count = slab_first_on(slab, page + 1) - number;
    struct block *next = NULL;
    for (uint32_t i = *count; i-- > 0;) {
        struct block *block = (struct block *)(slab_start(slab) + (number + i) * bytes);
        slab_mark(block, next);
        next = block;
    }
    slab_set_away(slab, away & (away - 1));
    return next;
}

/* The pages of a slab, as a bit each. */
struct pages {
    uint32_t held;   /* a live block lies on the page, at least in part */
    uint32_t begins; /* a free block, which may be hidden, begins on the page */
    uint32_t all;
};

static uint32_t pages_between(unsigned first, unsigned last)
{
    return (uint32_t)((UINT64_C(2) << last) - (UINT64_C(1) << first));
}

/* Finds out which pages are held. Walks the list `free`, whose blocks must be marked as free. */
static struct pages look_at_pages(const struct slab *slab)
{
    size_t bytes = size_class_bytes(slab->class);
    size_t page = os_page_bytes();
    uint64_t is_free[BLOCKS_MAX / 64] = {0};
    struct pages pages = {
        .begins = slab_away(slab),
        .all = pages_between(0, (unsigned)(((size_t)slab->slices << SLICE_SHIFT) / page) - 1),
    };
    for (const struct block *block = slab->free; block != NULL; block = block->next) {
        if (UNLIKELY(!slab_has_block(slab, block) || !slab_is_marked(block)))
            slab_misused("a free block was written to", block);
        size_t offset = (size_t)((const char *)block - slab_start(slab));
        size_t number = offset / bytes;
        is_free[number / 64] |= UINT64_C(1) << number % 64;
        pages.begins |= UINT32_C(1) << offset / page;
    }
    for (size_t number = 0; number < slab->carved; number++)
        if ((is_free[number / 64] >> number % 64 & 1) == 0 && !slab_is_hidden(slab, number * bytes))
            pages.held |= pages_between((unsigned)(number * bytes / page),
                                        (unsigned)((number * bytes + bytes - 1) / page));
    return pages;
}

/* Takes the blocks that begin on `hide`, a set of pages, off the list `free`. */
static void hide_blocks(struct slab *slab, uint32_t hide)
{
    size_t page = os_page_bytes();
    struct block *first = NULL;
    struct block *last = NULL;
    for (struct block *block = slab->free, *next; block != NULL; block = next) {
        next = block->next;
        if ((hide >> (size_t)((char *)block - slab_start(slab)) / page & 1) != 0)
            continue;
        if (last != NULL)
            slab_mark(last, block);
        else
            first = block;
        last = block;
    }
    if (last != NULL)
        slab_mark(last, NULL);
    slab->free = first;
    slab_set_away(slab, slab_away(slab) | hide);
}

/* Gives pages back, each sequence of them with one call. Returns how many bytes the machine
 * took. */
static size_t give_back_pages(const struct slab *slab, uint32_t pages)
{
    size_t page = os_page_bytes();
    size_t bytes = 0;
    while (pages != 0) {
        unsigned first = (unsigned)__builtin_ctz(pages);
        unsigned count = (unsigned)__builtin_ctzll(~((uint64_t)pages >> first));
        bytes += page_heap_trim(slab_start(slab) + first * page, count * page) ? count * page : 0;
        pages &= ~pages_between(first, first + count - 1);
    }
    return bytes;
}

size_t slab_trim(struct slab *slab)
{
    if (CAIRN_HARDENED || os_page_bytes() > SLICE_BYTES)
        return 0;
    struct pages pages = look_at_pages(slab);
    uint32_t idle = pages.all & ~pages.held & ~slab_away(slab);
    if (idle == 0)
        return 0;
    hide_blocks(slab, idle & pages.begins);
    return give_back_pages(slab, idle);
}
