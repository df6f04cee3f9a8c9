#define _GNU_SOURCE 1

#include "launch/sampler.h"

#include "base/clock.h"

#include <unistd.h>

void sampler_begin(struct sampler *sampler)
{
    uint64_t now_ns = clock_now_ns();
    sampler->peak = peak_begin(memory_slack_bytes());
    sampler->pace = (struct pace){.min_ns = NS_PER_MS, .max_ns = 100 * NS_PER_MS, .divisor = 500};
    pace_begin(&sampler->pace, now_ns);
    sampler->divide_pace =
        (struct pace){.min_ns = NS_PER_MS, .max_ns = 100 * NS_PER_MS, .divisor = 500};
    pace_begin(&sampler->divide_pace, now_ns);
    sampler->division = division_begin((uint64_t)sysconf(_SC_PAGESIZE));
    memory_begin(&sampler->memory, now_ns);
}

uint64_t sampler_due_ns(const struct sampler *sampler)
{
    return sampler->memory.method == MEMORY_NOT_MEASURED ? UINT64_MAX : sampler->pace.due_ns;
}

void sampler_take(struct sampler *sampler)
{
    if (sampler->memory.method == MEMORY_NOT_MEASURED)
        return;
    uint64_t begin_ns = clock_thread_cpu_ns();
    uint64_t look_begin_ns = sampler->memory.look.cpu_ns;
    struct peak_reading reading;
    bool is_read = memory_read(&sampler->memory, &reading);
    if (is_read) {
        peak_add(&sampler->peak, &reading);
        series_add(&sampler->series, clock_now_ns(), reading.anon_bytes + reading.shmem_bytes,
                   sampler->has_ended);
    }
    uint64_t look_ns = sampler->memory.look.cpu_ns - look_begin_ns, end_ns = clock_thread_cpu_ns();
    pace_spend(&sampler->pace, clock_now_ns(), end_ns - begin_ns - look_ns);
    if (!is_read || !sampler->divides || clock_now_ns() < sampler->divide_pace.due_ns)
        return;
    memory_divide(&sampler->memory, &reading, &sampler->division);
    pace_spend(&sampler->divide_pace, clock_now_ns(), clock_thread_cpu_ns() - end_ns);
}

void sampler_mark(struct sampler *sampler)
{
    sampler_take(sampler);
    if (sampler->series.readings > 0)
        series_mark(&sampler->series);
}

uint64_t sampler_cpu_ns(const struct sampler *sampler)
{
    return sampler->pace.cpu_ns + sampler->memory.look.cpu_ns + sampler->divide_pace.cpu_ns;
}

void sampler_end(struct sampler *sampler)
{
    peak_end(&sampler->peak);
    peak_check(&sampler->peak);
    series_check(&sampler->series);
    division_check(&sampler->division);
    memory_close(&sampler->memory);
}
