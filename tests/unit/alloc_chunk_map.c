/* alloc_chunk_map.c - the map against an array of flags, and against a search through all of it. */
#include "alloc/chunk_map.h"

#include "alloc_os.h"
#include "base/random.h"
#include "test.h"

enum { CHUNKS = 700 }; /* eleven words, the last of them in part */

static bool empty[CHUNKS];

static size_t found_by_looking_at_all(size_t count)
{
    size_t run = 0;
    for (size_t chunk = 0; chunk < CHUNKS; chunk++) {
        run = empty[chunk] ? run + 1 : 0;
        if (run == count)
            return chunk + 1 - count;
    }
    return CHUNK_MAP_NONE;
}

static void set(size_t first, size_t count, bool to)
{
    for (size_t i = first; i < first + count; i++)
        empty[i] = to;
    if (to)
        chunk_map_put(first, count);
    else
        chunk_map_take(first, count);
}

TEST(the_lowest_that_fits_is_found_whatever_was_put_and_taken)
{
    struct random random = random_of(1);
    for (int i = 0; i < 100000 && !test_failed; i++) {
        size_t first = random_below(&random, CHUNKS);
        size_t most = random_below(&random, 4) == 0 ? CHUNKS - first : 3;
        if (most > CHUNKS - first)
            most = CHUNKS - first;
        size_t count = 1 + random_below(&random, most);
        bool was = empty[first];
        for (size_t length = 1; length < count; length++)
            if (empty[first + length] != was)
                count = length;
        set(first, count, !was);
        size_t wanted = 1 + random_below(&random, random_below(&random, 4) == 0 ? 200 : 6);
        size_t found = chunk_map_find(wanted);
        CHECK(found == found_by_looking_at_all(wanted));
        CHECK(chunk_map_has(first) == !was);
        if (i % 1000 == 0)
            chunk_map_check();
        if (found != CHUNK_MAP_NONE && random_below(&random, 2) == 0)
            set(found, wanted, false);
    }
    for (size_t chunk = 0; chunk < CHUNKS; chunk++)
        if (empty[chunk])
            set(chunk, 1, false);
    CHECK(chunk_map_find(1) == CHUNK_MAP_NONE);
}

TEST(the_last_chunks_that_there_can_be_are_found)
{
    CHECK(chunk_map_find(1) == CHUNK_MAP_NONE);
    chunk_map_put(CHUNK_MAP_CHUNKS - 130, 130);
    CHECK(chunk_map_find(130) == CHUNK_MAP_CHUNKS - 130);
    CHECK(chunk_map_find(131) == CHUNK_MAP_NONE);
    chunk_map_take(CHUNK_MAP_CHUNKS - 130, 129);
    CHECK(chunk_map_find(1) == CHUNK_MAP_CHUNKS - 1);
    CHECK(chunk_map_find(2) == CHUNK_MAP_NONE);
    chunk_map_take(CHUNK_MAP_CHUNKS - 1, 1);
    chunk_map_check();
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
