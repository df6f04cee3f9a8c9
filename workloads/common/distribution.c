#include "common/distribution.h"

#include "common/doublings.h"

#include <math.h>

size_t size_log_uniform(struct random *random, size_t least, size_t most)
{
    struct doublings doublings = doublings_of(least, most);
    return size_of_doublings(random, &doublings);
}

size_t size_of_fleet(struct random *random)
{
    uint64_t of_1024 = random_below(random, 1024);
    if (of_1024 < 800) /* nodes, short strings */
        return size_log_uniform(random, 8, 128);
    if (of_1024 < 1003) /* records, small arrays; together 97.9 % */
        return size_log_uniform(random, 128, 1023);
    if (of_1024 < 1021) /* buffers */
        return size_log_uniform(random, 1024, 8192);
    return size_log_uniform(random, 8193, 256 << 10);
}

uint64_t lifetime_exponential(struct random *random, double mean)
{
    return 1 + (uint64_t)(-log(1 - random_unit(random)) * mean);
}

uint64_t lifetime_generational(struct random *random, double young_mean, double old_mean,
                               unsigned old_one_in)
{
    return lifetime_exponential(random,
                                random_below(random, old_one_in) == 0 ? old_mean : young_mean);
}
