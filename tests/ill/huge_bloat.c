/* huge_bloat: blocks of up to 1 KiB lie in huge pages, $ILL of 100 bytes of which nobody is ever given.
 *
 * Found: huge-page-bloat, where the kernel has huge pages for who asks. */
#include "area.h"

static const size_t area_extent_bytes = 2 << 20;

static void area_begin_extent(char *start, size_t given_bytes)
{
    (void)given_bytes;
    madvise(start, area_extent_bytes, MADV_HUGEPAGE);
}
