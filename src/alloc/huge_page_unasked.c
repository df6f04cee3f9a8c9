#include "alloc/huge_page_unasked.h"

#include "alloc/chunk.h"
#include "alloc/huge_page_timing.h"
#include "os/os.h"

enum {
    /* 8 MiB and 4 MiB: programs with less memory and shorter runs do not read the setting. */
    FIRST_CHUNKS = 4,
    LONG_RUN_CHUNKS = 2,
};

bool (*huge_page_may_ask)(void);

static enum { UNKNOWN, ALWAYS, OTHER } setting;

static bool is_always(void)
{
    if (setting == UNKNOWN && huge_page_may_ask != NULL && huge_page_may_ask())
        setting = os_gives_huge_pages_unasked() ? ALWAYS : OTHER;
    return setting == ALWAYS;
}

void huge_page_unasked_grown(size_t first, size_t count)
{
    enum huge_page_use wanted = huge_page_wanted();
    size_t end = first + count;
    if (wanted == HUGE_PAGE_AUTO && end > FIRST_CHUNKS && !is_always())
        end = FIRST_CHUNKS;
    if (wanted == HUGE_PAGE_ALWAYS || first >= end ||
        !os_want_small_pages(region_address(first * CHUNK_SLICES), (end - first) * CHUNK_BYTES))
        return;
    for (size_t number = first; number < end; number++)
        chunk_of(number)->forbidden = true;
}

/* A chunk of which the run covers only a part needs no advice. The rest of the chunk keeps its
 * advice, so that the chunk consists of several mappings, and a huge page must lie in one. */
void huge_page_unasked_renewed(size_t index, size_t slices)
{
    size_t first = (index + CHUNK_SLICES - 1) / CHUNK_SLICES;
    size_t end = (index + slices) / CHUNK_SLICES;
    if (first < end)
        huge_page_unasked_grown(first, end - first);
}

/* Lets the kernel give huge pages in the chunks from `first` up to `end`. */
static void allow(size_t first, size_t end)
{
    if (!os_want_huge_pages(region_address(first * CHUNK_SLICES), (end - first) * CHUNK_BYTES))
        return;
    for (size_t number = first; number < end; number++) {
        struct chunk *chunk = chunk_of(number);
        chunk->forbidden = chunk->small = false;
        chunk->huge = true;
    }
}

bool huge_page_unasked_run(size_t index, size_t slices)
{
    size_t first = (index + CHUNK_SLICES - 1) / CHUNK_SLICES;
    size_t end = (index + slices) / CHUNK_SLICES;
    if (LIKELY(end < first + LONG_RUN_CHUNKS) || huge_page_wanted() == HUGE_PAGE_NEVER ||
        !is_always())
        return false;
    bool has_all = true;
    for (size_t number = first; number < end; number++)
        has_all &= chunk_of(number)->huge;
    if (!has_all)
        allow(first, end);
    return true;
}

bool huge_page_unasked_is_always(void)
{
    return setting == ALWAYS;
}

void huge_page_unasked_allow(size_t number)
{
    if (chunk_of(number)->forbidden)
        allow(number, number + 1);
}
