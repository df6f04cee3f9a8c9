/* poisson.h - random gaps between the points of a Poisson process, and the chance that an interval
 * of a given length has a point. Both are exact to nine digits. They do not use libm, because not
 * every program loads it. */
#ifndef CAIRN_PROBE_POISSON_H
#define CAIRN_PROBE_POISSON_H

#include "base/random.h"

#include <string.h>

#define POISSON_LN2 0.69314718055994530942

/* Returns the natural logarithm of `x`, which is positive and normal. */
static inline double poisson_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1023) << 52;
    double m; /* x == m * 2^exponent */
    memcpy(&m, &bits, sizeof m);
    if (m > 1.41421356) {
        m /= 2;
        exponent++;
    }
    /* The series of artanh. */
    double s = (m - 1) / (m + 1), q = s * s;
    double series = s * (2 + q * (2.0 / 3 + q * (2.0 / 5 + q * (2.0 / 7 + q * (2.0 / 9)))));
    return series + exponent * POISSON_LN2;
}

/* Returns e^-x for x >= 0. */
static inline double poisson_exp(double x)
{
    enum { TERMS = 12, LARGE = 60 };
    if (x > LARGE)
        return 0;
    uint64_t halvings = (uint64_t)(x / POISSON_LN2 + 0.5);
    double rest = (double)halvings * POISSON_LN2 - x, sum = 1;
    for (int i = TERMS; i > 0; i--)
        sum = 1 + sum * rest / i;
    return sum / (double)(UINT64_C(1) << halvings / 2) /
           (double)(UINT64_C(1) << (halvings - halvings / 2));
}

/* Returns a random distance to the next point, if the mean distance is `mean`. */
static inline double poisson_gap(struct random *random, double mean)
{
    double part = (double)((random_next(random) >> 11) + 1) * 0x1p-53; /* above 0, at most 1 */
    return -poisson_log(part) * mean;
}

/* Returns the probability that an interval of this length has a point. */
static inline double poisson_chance(double length, double mean)
{
    return 1 - poisson_exp(length / mean);
}

#endif
