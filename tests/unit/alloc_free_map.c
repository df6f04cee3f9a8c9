/* alloc_free_map.c - tests the free map against one flag per slice and a linear search through all
 * flags. */
#include "alloc/free_map.h"

#include "alloc_os.h"
#include "base/random.h"
#include "test.h"

#include <string.h>

enum { CHUNKS = 150, SLICES = CHUNKS * CHUNK_SLICES }; /* two groups and part of a third */

static bool is_free[SLICES];

/* Returns the first slice of the lowest run of `wanted` free slices, or SLICES if there is none. */
static size_t lowest_by_linear_search(size_t wanted)
{
    size_t run = 0;
    for (size_t slice = 0; slice < SLICES; slice++) {
        run = is_free[slice] ? run + 1 : 0;
        if (run == wanted)
            return slice + 1 - wanted;
    }
    return SLICES;
}

/* Updates the map's entry of a chunk from the flags of its slices. */
static void update_map(size_t chunk)
{
    const bool *slices = &is_free[chunk * CHUNK_SLICES];
    unsigned at_start = 0;
    unsigned longest = 0;
    unsigned run = 0;
    for (unsigned i = 0; i < CHUNK_SLICES; i++) {
        run = slices[i] ? run + 1 : 0;
        longest = run > longest ? run : longest;
        at_start = run == i + 1 ? run : at_start;
    }
    struct free_slices now = {(uint8_t)at_start, (uint8_t)longest, (uint8_t)run, 0};
    struct free_slices was = free_map.chunks[chunk];
    if (now.at_start <= was.at_start && now.longest <= was.longest && now.at_end <= was.at_end)
        free_map_take(chunk, now);
    else
        free_map_put(chunk, now);
}

static void set(size_t first, size_t count, bool to)
{
    for (size_t i = first; i < first + count; i++)
        is_free[i] = to;
    for (size_t chunk = first / CHUNK_SLICES; chunk <= (first + count - 1) / CHUNK_SLICES; chunk++)
        update_map(chunk);
}

static size_t some_slices(struct random *random)
{
    static const size_t most[] = {8, CHUNK_SLICES, 3 * CHUNK_SLICES, 70 * CHUNK_SLICES};
    return 1 + random_below(random, most[random_below(random, COUNT_OF(most))]);
}

static size_t lowest_empty_by_linear_search(void)
{
    for (size_t chunk = 0; chunk < CHUNKS; chunk++)
        if (memchr(&is_free[chunk * CHUNK_SLICES], false, CHUNK_SLICES) == NULL)
            return chunk;
    return FREE_MAP_NONE;
}

static void check_find(size_t wanted)
{
    size_t found = free_map_find(wanted);
    size_t expected = lowest_by_linear_search(wanted);
    CHECK(found == (expected == SLICES ? FREE_MAP_NONE : expected / CHUNK_SLICES));
}

TEST(the_lowest_run_that_fits_is_found_after_random_changes)
{
    struct random random = random_of(1);
    free_map_grow(CHUNKS);
    for (int i = 0; i < 20000 && !test_failed; i++) {
        size_t count = some_slices(&random);
        size_t first = random_below(&random, SLICES - count + 1);
        /* Alternates between a nearly empty and a nearly full map. */
        if (i / 2000 % 2 == 0) {
            set(first, count, i % 2 == 0);
        } else {
            size_t lowest = lowest_by_linear_search(count);
            if (lowest != SLICES)
                set(lowest, count, false);
            set(first, 1 + random_below(&random, count), random_below(&random, 3) == 0);
        }
        for (int looks = 0; looks < 3; looks++)
            check_find(some_slices(&random));
        CHECK(free_map_find_empty() == lowest_empty_by_linear_search());
        if (i % 100 == 0)
            free_map_check();
    }
}

TEST(free_slices_at_the_end_are_counted_across_empty_chunks)
{
    set(0, SLICES, false);
    CHECK(free_map_at_end() == 0);
    set(SLICES - 5, 5, true);
    CHECK(free_map_at_end() == 5);
    set(CHUNK_SLICES / 2, SLICES - CHUNK_SLICES / 2, true);
    CHECK(free_map_at_end() == SLICES - CHUNK_SLICES / 2);
    CHECK(free_map_find(SLICES - CHUNK_SLICES / 2) == 0);
    CHECK(free_map_find(SLICES - CHUNK_SLICES / 2 + 1) == FREE_MAP_NONE);
}

TEST(the_last_possible_chunks_are_found)
{
    set(0, SLICES, false);
    CHECK(free_map_find(1) == FREE_MAP_NONE);
    free_map_grow(FREE_MAP_CHUNKS);
    free_map_put(FREE_MAP_CHUNKS - 1,
                 (struct free_slices){CHUNK_SLICES, CHUNK_SLICES, CHUNK_SLICES, 0});
    free_map_put(FREE_MAP_CHUNKS - 2, (struct free_slices){.longest = 7, .at_end = 3});
    /* A run of 8 slices does not fit within chunk FREE_MAP_CHUNKS - 2, whose longest run has 7. It
     * begins in the last three slices of that chunk, and goes on in the last chunk. */
    CHECK(free_map_find(8) == FREE_MAP_CHUNKS - 2);
    CHECK(free_map_find(7) == FREE_MAP_CHUNKS - 2);
    CHECK(free_map_find(CHUNK_SLICES + 3) == FREE_MAP_CHUNKS - 2);
    CHECK(free_map_find(CHUNK_SLICES + 4) == FREE_MAP_NONE);
    free_map_check();
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
