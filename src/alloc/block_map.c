#include "alloc/block_map.h"

#include <string.h>

void block_map_clear(const void *start, size_t bytes)
{
    memset((void *)block_map_at(start), BLOCK_NONE, bytes / REGION_MAP_UNIT);
}
