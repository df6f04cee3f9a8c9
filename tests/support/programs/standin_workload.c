/* standin_workload.c - takes the place of a built-in workload in tests: allocates, and ends with a
 * line of JSON like that of a built-in workload.
 *
 *     standin_workload [OPERATIONS [IDLE_MS]]      default 1000, 0
 *
 * STANDIN in the environment makes the workload misbehave in one of the ways below. A knob of a
 * contender can set STANDIN. If STANDIN_ONLY is set, the workload misbehaves only if OPERATIONS
 * equals STANDIN_ONLY.
 *
 *     checksum   prints a different checksum
 *     silent     prints nothing
 *     torn       prints half a line
 *     crash      ends by a signal
 *     damaged    fails like a workload whose blocks lost their contents
 *     timed      prints the line of a workload that a time limit ended
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv)
{
    long operations = argc > 1 ? atol(argv[1]) : 1000;
    long idle_ms = argc > 2 ? atol(argv[2]) : 0;
    const char *how = getenv("STANDIN");
    const char *only = getenv("STANDIN_ONLY");
    if (how == NULL || (only != NULL && atol(only) != operations))
        how = "";
    unsigned long sum = 0;
    for (long i = 0; i < operations; i++) {
        unsigned char *block = malloc((size_t)(16 + i % 500));
        if (block == NULL)
            return 1;
        block[0] = (unsigned char)i;
        sum += block[0];
        free(block);
    }
    struct timespec nap = {idle_ms / 1000, idle_ms % 1000 * 1000000};
    nanosleep(&nap, NULL);
    if (strcmp(how, "crash") == 0)
        raise(SIGABRT);
    if (strcmp(how, "damaged") == 0) {
        fprintf(stderr, "standin: 3 blocks did not hold what was written into them\n");
        return 1;
    }
    if (strcmp(how, "silent") == 0)
        return 0;
    if (strcmp(how, "torn") == 0) {
        printf("{\"schema\":1,\"workload\":\"stan");
        return 0;
    }
    char checksum[32] = "null";
    if (strcmp(how, "timed") != 0)
        snprintf(checksum, sizeof checksum, "\"%016lx\"", sum + (strcmp(how, "checksum") == 0));
    printf(
        "a line that is none\n"
        "{\"schema\":1,\"workload\":\"standin\",\"operations\":%ld,\"batches\":1,\"ns_per_"
        "operation\":{"
        "\"mean\":12.5,"
        "\"median\":12,\"p95\":20.25,\"p99\":30},\"busy_ns\":%ld,\"idle_ns\":%ld,\"minor_faults\":"
        "7,"
        "\"checksum\":%s,"
        "\"damaged\":0,\"live_peak_bytes\":515,\"parameters\":{\"threads\":1,\"seed\":1,\"touch\":"
        "\"header\"},"
        "\"figures\":{\"resident_after_1_s_bytes\":4096}}\n",
        operations, 20 * operations, idle_ms * 1000000, checksum);
    return 0;
}
