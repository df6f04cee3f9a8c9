/* huge_bloat: blocks of up to 1 KiB are in huge pages. $ILL percent of each huge page are never
 * used for blocks.
 *
 * If the kernel gives huge pages on request, Cairn must report the finding huge-page-bloat.
 */
#include "area.h"

static const size_t area_extent_bytes = 2 << 20;

static void area_begin_extent(char *start, size_t given_bytes)
{
    (void)given_bytes;
    madvise(start, area_extent_bytes, MADV_HUGEPAGE);
}
