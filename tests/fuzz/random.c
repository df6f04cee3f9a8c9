/* random.c - runs a fuzz target on random inputs: `target [--seed N] [--runs N | --seconds N]`, or
 * on the given files.
 *
 * The program prints the seed of each input before it runs the input, so the last line shows the
 * seed of the input that failed. `--seed N --runs 1` repeats that input.
 */
#define _GNU_SOURCE 1

#include "fuzz.h"

#include <string.h>
#include <time.h>

enum { INPUT_BYTES = 6000 };

static uint8_t input[1 << 20];

static uint64_t mix(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static void run_one(uint64_t seed)
{
    uint64_t state = seed;
    size_t size = mix(&state) % INPUT_BYTES;
    for (size_t i = 0; i < size; i++)
        input[i] = (uint8_t)mix(&state);
    LLVMFuzzerTestOneInput(input, size);
}

static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    size_t size = fread(input, 1, sizeof input, file);
    fclose(file);
    LLVMFuzzerTestOneInput(input, size);
    return 0;
}

int main(int argc, char **argv)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    unsigned long runs = 300;
    time_t end = 0;
    int failed = 0;
    unsigned files = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
            runs = strtoul(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            end = now.tv_sec + strtol(argv[++i], NULL, 0);
        else if (++files)
            failed |= run_file(argv[i]);
    }
    unsigned long ran = files;
    for (; files == 0 && (end > 0 ? time(NULL) < end : ran < runs); ran++) {
        /* When the target aborts, this line shows the seed of the input. */
        printf("\r--seed %llu", (unsigned long long)(seed + ran));
        fflush(stdout);
        run_one(seed + ran);
    }
    printf("\n%lu inputs from --seed %llu\n", ran, (unsigned long long)seed);
    return failed;
}
