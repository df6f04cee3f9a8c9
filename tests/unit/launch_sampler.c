#define _GNU_SOURCE 1

#include "launch/sampler.h"

#include "base/clock.h"
#include "test.h"

/* The time since the beginning limits the pace. Without it, each reading would also divide the
 * memory, however long that takes. */
TEST(both_paces_begin_with_the_sampling)
{
    static struct sampler sampler = {.divides = true};
    uint64_t before_ns = clock_now_ns();
    sampler_begin(&sampler);
    uint64_t after_ns = clock_now_ns();
    const struct pace *paces[] = {&sampler.pace, &sampler.divide_pace};
    for (size_t i = 0; i < COUNT_OF(paces); i++) {
        CHECK(paces[i]->begin_ns >= before_ns && paces[i]->begin_ns <= after_ns);
        CHECK(paces[i]->due_ns == paces[i]->begin_ns + NS_PER_MS);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
