#include "alloc/huge_page_density.h"

#include "alloc/chunk.h"
#include "alloc/huge_page_timing.h"
#include "alloc/huge_page_unasked.h"
#include "os/os.h"

/* A sample counts as filled if this share of its slices is in use, and as dense if this share of
 * its pages is resident. */
enum { SHARE = 7, OF = 8 };

/* Between two samples, one part in ALWAYS_PART of the chunks in use may request huge pages if the
 * machine's setting is `always`, and else one part in OF. */
enum { ALWAYS_PART = 2 };

static size_t sample; /* number of the sample; 0: none */

/* Number of chunks to be begun up to the next sample, which is the last of them. 0: no sample was
 * dense so far, or the last one has yet to be judged. */
static size_t left;

/* Returns whether the sample is filled and dense. Sets `*refused` if the kernel does not say. */
static bool is_dense(size_t number, bool *refused)
{
    if (chunk_of(number)->used_count < CHUNK_SLICES * SHARE / OF)
        return false;
    size_t pages = CHUNK_BYTES / os_page_bytes();
    size_t resident;
    *refused = !os_count_resident(region_address(number * CHUNK_SLICES), CHUNK_BYTES, &resident);
    return !*refused && resident >= pages * SHARE / OF;
}

bool huge_page_density_suffices(size_t slices, size_t used_chunks)
{
    if (huge_page_wanted() != HUGE_PAGE_AUTO)
        return huge_page_wanted() == HUGE_PAGE_ALWAYS;
    bool refused = huge_page_may_ask == NULL || !huge_page_may_ask();
    if (!refused && left == 0 && sample != 0 && is_dense(sample, &refused))
        left = used_chunks / (huge_page_unasked_is_always() ? ALWAYS_PART : OF) + 1;
    if (refused)
        return slices == 1;
    if (left == 0)
        return false;
    sample = 0;
    return --left > 0;
}

void huge_page_density_sample(size_t number)
{
    sample = number;
}
