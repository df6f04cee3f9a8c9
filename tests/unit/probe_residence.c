/* probe_residence.c - tests how long a look at the resident memory is expected to take. */
#include "probe/residence.h"

#include "test.h"

/* A process with a layout once spent twice the permitted time on its first look. */
TEST(a_look_that_also_counts_huge_pages_is_expected_to_take_twice_as_long)
{
    const uint64_t resident = UINT64_C(1) << 30;
    uint64_t before_ns = residence_look_ns(resident);
    CHECK(before_ns > 0 && residence_look_ns(0) == 0);
    CHECK(residence_look_ns(2 * resident) == 2 * before_ns);
    residence_count_huge();
    CHECK(residence_look_ns(resident) == 2 * before_ns);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
