#include "alloc/free_map.h"

#include "alloc/broken.h"

struct free_map free_map;

/* Returns the number of free slices side by side from the start of `chunk` on. Stops before chunk
 * `behind`. */
static size_t free_up_to(size_t chunk, size_t behind)
{
    size_t free = 0;
    while (chunk < behind && free_map.chunks[chunk].at_start == CHUNK_SLICES) {
        free += CHUNK_SLICES;
        chunk++;
    }
    return chunk < behind ? free + free_map.chunks[chunk].at_start : free;
}

/* Returns the number of free slices side by side that end before `chunk`. Reads chunks from `first`
 * on; `before` free slices lie directly before chunk `first`. */
static size_t free_down_to(size_t chunk, size_t first, size_t before)
{
    size_t free = 0;
    while (chunk > first && free_map.chunks[chunk - 1].at_end == CHUNK_SLICES) {
        free += CHUNK_SLICES;
        chunk--;
    }
    return free + (chunk > first ? free_map.chunks[chunk - 1].at_end : before);
}

size_t free_map_at_end(void)
{
    return free_down_to(free_map.end, 0, 0);
}

/* Returns the first chunk from `first` to before `behind` in which a run of `slices` free slices
 * lies or ends, or FREE_MAP_NONE. `*before` is the number of free slices directly before chunk
 * `first`. `*before` is updated to the number directly before the chunk where the search
 * stopped. */
static size_t look(size_t first, size_t behind, size_t *before, size_t slices)
{
    for (size_t number = first; number < behind; number++) {
        struct free_slices chunk = free_map.chunks[number];
        if (*before + chunk.at_start >= slices || chunk.longest >= slices)
            return number;
        *before = chunk.at_start == CHUNK_SLICES ? *before + CHUNK_SLICES : chunk.at_end;
    }
    return FREE_MAP_NONE;
}

/* Returns an upper bound of the longest free run within the chunks from `first` to before
 * `behind`. */
static uint16_t longest_of(size_t first, size_t behind)
{
    size_t longest = 0;
    size_t free = 0;
    for (size_t number = first; number < behind; number++) {
        struct free_slices chunk = free_map.chunks[number];
        if (free + chunk.at_start > longest)
            longest = free + chunk.at_start;
        if (chunk.longest > longest)
            longest = chunk.longest;
        free = chunk.at_start == CHUNK_SLICES ? free + CHUNK_SLICES : chunk.at_end;
    }
    return (uint16_t)longest;
}

static size_t group_end(size_t first)
{
    return first + FREE_MAP_GROUP < free_map.end ? first + FREE_MAP_GROUP : free_map.end;
}

size_t free_map_find(size_t slices)
{
    size_t before = 0;
    for (size_t first = 0; first < free_map.end; first += FREE_MAP_GROUP) {
        size_t behind = group_end(first);
        uint16_t *bound = &free_map.bounds[first / FREE_MAP_GROUP];
        if (*bound < slices && before + free_up_to(first, behind) < slices) {
            before = free_down_to(behind, first, before);
            continue;
        }
        size_t number = look(first, behind, &before, slices);
        if (number != FREE_MAP_NONE)
            return before + free_map.chunks[number].at_start >= slices
                       ? number - (before + CHUNK_SLICES - 1) / CHUNK_SLICES
                       : number;
        *bound = longest_of(first, behind);
    }
    return FREE_MAP_NONE;
}

size_t free_map_find_empty(void)
{
    for (size_t first = 0; first < free_map.end; first += FREE_MAP_GROUP) {
        uint16_t *bound = &free_map.bounds[first / FREE_MAP_GROUP];
        if (*bound < CHUNK_SLICES)
            continue;
        for (size_t number = first; number < group_end(first); number++)
            if (free_map.chunks[number].longest == CHUNK_SLICES)
                return number;
        *bound = longest_of(first, group_end(first));
    }
    return FREE_MAP_NONE;
}

void free_map_check(void)
{
    for (size_t first = 0; first < FREE_MAP_CHUNKS; first += FREE_MAP_GROUP) {
        size_t longest = longest_of(first, first + FREE_MAP_GROUP);
        CHECK_THAT(longest <= free_map.bounds[first / FREE_MAP_GROUP]);
        CHECK_THAT(longest == 0 || first < free_map.end);
    }
}
