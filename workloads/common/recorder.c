#include "common/recorder.h"

enum { UNITS_PER_NS = 64, STEP_BITS = 7 };

static unsigned index_of(uint64_t units)
{
    if (units < RECORDER_STEPS)
        return (unsigned)units;
    unsigned doubling = 63 - (unsigned)__builtin_clzll(units) - STEP_BITS;
    unsigned index =
        (doubling + 1) * RECORDER_STEPS + (unsigned)((units >> doubling) - RECORDER_STEPS);
    unsigned last = RECORDER_DOUBLINGS * RECORDER_STEPS - 1;
    return index < last ? index : last;
}

/* Returns the middle of the values that are counted at this index, in units. */
static double middle_of(unsigned index)
{
    if (index < RECORDER_STEPS)
        return index;
    unsigned doubling = index / RECORDER_STEPS - 1;
    double width = (double)(UINT64_C(1) << doubling);
    return (double)(RECORDER_STEPS + index % RECORDER_STEPS) * width + (width - 1) / 2;
}

void recorder_add(struct recorder *recorder, uint64_t ns, uint64_t operations)
{
    recorder->batches++;
    recorder->operations += operations;
    recorder->total_ns += ns;
    recorder->count[index_of((ns * UNITS_PER_NS + operations / 2) / operations)]++;
}

void recorder_merge(struct recorder *recorder, const struct recorder *other)
{
    recorder->batches += other->batches;
    recorder->operations += other->operations;
    recorder->total_ns += other->total_ns;
    for (unsigned i = 0; i < RECORDER_DOUBLINGS * RECORDER_STEPS; i++)
        if (other->count[i] != 0) /* adding 0 would touch pages that are not in use */
            recorder->count[i] += other->count[i];
}

double recorder_quantile(const struct recorder *recorder, double part)
{
    if (recorder->batches == 0)
        return 0;
    double wanted = part * (double)recorder->batches;
    uint64_t seen = 0;
    unsigned last = 0;
    for (unsigned i = 0; i < RECORDER_DOUBLINGS * RECORDER_STEPS; i++) {
        if (recorder->count[i] == 0)
            continue;
        seen += recorder->count[i];
        last = i;
        if ((double)seen >= wanted)
            break;
    }
    return middle_of(last) / UNITS_PER_NS;
}
