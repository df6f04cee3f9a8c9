#include "alloc/huge_page_unasked.h"

#include "alloc/chunk.h"
#include "alloc/huge_page_timing.h"
#include "os/os.h"

enum {
    FIRST_CHUNKS = 4, /* 8 MiB: smaller programs do not read the setting */

    /* 4 MiB: a run that covers at least one whole chunk, wherever it begins. */
    LONG_RUN_SLICES = 2 * CHUNK_SLICES,
};

bool (*huge_page_may_ask)(void);

static enum { UNKNOWN, ALWAYS, OTHER } setting;

static bool is_always(void)
{
    if (setting == UNKNOWN && huge_page_may_ask != NULL && huge_page_may_ask())
        setting = os_gives_huge_pages_unasked() ? ALWAYS : OTHER;
    return setting == ALWAYS;
}

/* Notes the last advice for each chunk that lies in the run as a whole. */
static void note(size_t index, size_t slices, bool huge)
{
    size_t end = (index + slices) / CHUNK_SLICES;
    for (size_t number = (index + CHUNK_SLICES - 1) / CHUNK_SLICES; number < end; number++) {
        struct chunk *chunk = chunk_of(number);
        chunk->huge = huge;
        chunk->forbidden = !huge;
        chunk->small = false;
    }
}

void huge_page_unasked_allow(size_t index, size_t slices)
{
    if (os_want_huge_pages(region_address(index), slices << SLICE_SHIFT))
        note(index, slices, true);
}

void huge_page_unasked_forbid(size_t index, size_t slices)
{
    if (os_want_small_pages(region_address(index), slices << SLICE_SHIFT))
        note(index, slices, false);
}

void huge_page_unasked_grown(size_t index, size_t slices)
{
    enum huge_page_use wanted = huge_page_wanted();
    size_t first_end = (size_t)FIRST_CHUNKS * CHUNK_SLICES;
    if (wanted == HUGE_PAGE_AUTO && index + slices > first_end && !is_always())
        slices = index < first_end ? first_end - index : 0;
    if (wanted != HUGE_PAGE_ALWAYS && slices > 0)
        huge_page_unasked_forbid(index, slices);
}

bool huge_page_unasked_is_long(size_t slices)
{
    return UNLIKELY(slices >= LONG_RUN_SLICES) && huge_page_wanted() == HUGE_PAGE_AUTO &&
           is_always();
}

bool huge_page_unasked_is_always(void)
{
    return setting == ALWAYS;
}
