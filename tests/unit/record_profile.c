/* record_profile.c - tests the layout that cairn/profile/reader.py relies on, and how times and
 * sizes are divided into buckets and groups. */
#include "record/profile.h"

#include "test.h"

/* The same numbers are in tests/python/test_profile.py. A change needs a new PROFILE_VERSION and an
 * update of both files. */
TEST(the_structs_have_the_sizes_that_the_reader_knows)
{
    CHECK(sizeof(struct profile_head) == 4320);
    CHECK(sizeof(struct profile_thread) == 1584);
    CHECK(sizeof(struct profile_samples) == 173152);
}

TEST(buckets_grow_with_the_ticks_and_are_exact_at_first)
{
    uint32_t before = 0;
    for (uint64_t ticks = 0; ticks < 100000; ticks++) {
        uint32_t bucket = profile_bucket(ticks);
        CHECK(bucket == before || bucket == before + 1);
        CHECK(ticks > 15 || bucket == ticks);
        before = bucket;
        if (test_failed)
            return;
    }
    CHECK(profile_bucket(UINT64_MAX) == PROFILE_BUCKETS - 1);
    CHECK(profile_bucket((UINT64_C(1) << 42) - 1) == PROFILE_BUCKETS - 1);
}

TEST(groups_are_by_the_bytes_asked_for)
{
    CHECK(profile_group(0) == PROFILE_SMALL);
    CHECK(profile_group(PROFILE_SMALL_MAX) == PROFILE_SMALL);
    CHECK(profile_group(PROFILE_SMALL_MAX + 1) == PROFILE_MEDIUM);
    CHECK(profile_group(PROFILE_MEDIUM_MAX) == PROFILE_MEDIUM);
    CHECK(profile_group(PROFILE_MEDIUM_MAX + 1) == PROFILE_LARGE);
    CHECK(profile_group(SIZE_MAX) == PROFILE_LARGE);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
