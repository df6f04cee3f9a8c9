#include "common/arguments.h"
#include "common/worker.h"

#include <inttypes.h>
#include <stdio.h>

enum { FIGURES_MOST = 16 };

static struct {
    const char *name;
    double value;
} figures[FIGURES_MOST];
static unsigned figure_count;

void workload_figure(const char *name, double value)
{
    if (figure_count == FIGURES_MOST)
        workload_fail("has more than %d figures", FIGURES_MOST);
    figures[figure_count].name = name;
    figures[figure_count++].value = value;
}

static void print_parameters(void)
{
    size_t length;
    const char *word = choice_name(touch_choices, settings.touch, &length);
    printf("\"parameters\":{\"threads\":%u,\"seed\":%" PRIu64 ",\"touch\":\"%.*s\"",
           settings.threads, settings.seed, (int)length, word);
    if (settings.seconds_ns > 0)
        printf(",\"seconds\":%.3f", (double)settings.seconds_ns / 1e9);
    for (const struct parameter *own = workload.own; own != NULL && own->name != NULL; own++) {
        if (own->choices != NULL) {
            word = choice_name(own->choices, own->value, &length);
            printf(",\"%s\":\"%.*s\"", own->name, (int)length, word);
        } else {
            printf(",\"%s\":%" PRIu64, own->name, own->value);
        }
    }
    printf("}");
}

/* Prints the line of JSON. docs/workloads.md explains every field. */
static void print_result(const struct outcome *outcome)
{
    const struct recorder *recorder = &outcome->recorder;
    double mean =
        recorder->operations > 0 ? (double)recorder->total_ns / (double)recorder->operations : 0;
    printf("{\"schema\":1,\"workload\":\"%s\",\"operations\":%" PRIu64 ",\"batches\":%" PRIu64,
           workload.name, recorder->operations, recorder->batches);
    printf(",\"ns_per_operation\":{\"mean\":%.3f,\"median\":%.3f,\"p95\":%.3f,\"p99\":%.3f}", mean,
           recorder_quantile(recorder, 0.5), recorder_quantile(recorder, 0.95),
           recorder_quantile(recorder, 0.99));
    printf(",\"busy_ns\":%" PRIu64 ",\"idle_ns\":%" PRIu64 ",\"minor_faults\":%" PRIu64,
           outcome->busy_ns, outcome->idle_ns, outcome->minor_faults);
    if (settings.seconds_ns > 0)
        printf(",\"checksum\":null");
    else
        printf(",\"checksum\":\"%016" PRIx64 "\"", outcome->checksum);
    printf(",\"damaged\":%" PRIu64 ",\"live_peak_bytes\":%" PRIu64 ",", outcome->damaged,
           outcome->live_peak_bytes);
    print_parameters();
    printf(",\"figures\":{");
    for (unsigned i = 0; i < figure_count; i++)
        printf("%s\"%s\":%.17g", i > 0 ? "," : "", figures[i].name, figures[i].value);
    printf("}}\n");
}

int main(int argc, char **argv)
{
    /* Without this buffer, stdio would allocate one after all work is done. That allocation would
     * make some allocators return memory to the kernel that they had kept until then. */
    static char line[4096];
    setvbuf(stdout, line, _IOFBF, sizeof line);
    arguments_read(argc, argv);
    if (workload.prepare != NULL)
        workload.prepare();
    static struct outcome outcome;
    workers_run(&outcome);
    if (workload.conclude != NULL)
        workload.conclude();
    print_result(&outcome);
    if (fflush(stdout) != 0)
        workload_fail("cannot write its result");
    if (outcome.damaged > 0)
        workload_fail("%" PRIu64 " blocks did not hold what was written into them",
                      outcome.damaged);
    return 0;
}
