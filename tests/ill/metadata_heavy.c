/* metadata_heavy: of 64 KiB, $ILL of 100 bytes are records of the blocks that lie in the rest, of up to 1 KiB.
 *
 * Found: touches-more-than-it-gives. */
#include "area.h"

static const size_t area_extent_bytes = 64 << 10;

static void area_begin_extent(char *start, size_t given_bytes)
{
    memset(start + given_bytes, 1, area_extent_bytes - given_bytes);
}
