/* base/ticks.h - replaces src/base/ticks.h in a model. The time stands still, so that each
 * execution of a schedule makes the same steps. */
#ifndef CAIRN_TICKS_H
#define CAIRN_TICKS_H

#include "base/clock.h"

static inline uint64_t ticks_now(void)
{
    return 0;
}

#endif
