/* probe_own_memory.c - tests that the probe's own memory is counted, and only what is resident. */
#include "probe/own_memory.h"

#include "test.h"

#include <string.h>

#define MIB ((size_t)1 << 20)

TEST(own_memory_is_counted_when_it_is_written)
{
    char *first = own_memory_map(4 * MIB);
    REQUIRE(first != NULL);
    uint64_t before = own_memory_resident(true, 0).private;
    memset(first, 1, MIB);
    uint64_t after = own_memory_resident(true, 0).private;
    CHECK(after >= before + MIB && after < before + 3 * MIB);
    memset(first, 1, 4 * MIB);
    uint64_t last = own_memory_resident(true, 0).private;
    CHECK(last >= before + 4 * MIB && last < before + 5 * MIB);
}

/* The kernel maps its page of zeroes where memory is read that was never written. That page is not
 * resident. */
TEST(own_memory_that_was_only_read_is_not_counted)
{
    volatile char *start = own_memory_map_sparse(4 * MIB);
    REQUIRE(start != NULL);
    uint64_t before = own_memory_resident(true, 0).private;
    char sum = 0;
    for (size_t at = 0; at < 4 * MIB; at += 4096)
        sum = (char)(sum + start[at]);
    CHECK(sum == 0 && own_memory_resident(true, 0).private < before + MIB / 4);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
