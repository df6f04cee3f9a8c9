/* metadata_heavy: $ILL percent of every 64 KiB are metadata. The rest holds blocks of up to 1 KiB.
 *
 * Cairn must report the finding touches-more-than-it-gives (docs/findings.md).
 */
#include "area.h"

static const size_t area_extent_bytes = 64 << 10;

static void area_begin_extent(char *start, size_t given_bytes)
{
    memset(start + given_bytes, 1, area_extent_bytes - given_bytes);
}
