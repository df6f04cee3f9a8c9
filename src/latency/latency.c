/* latency.c - measures how long loads take that miss a cache or the TLB.
 *
 *     cairn-latency BYTES STRIDE huge|small
 *
 * BYTES bytes of memory have one place in each STRIDE bytes. A list links all places in random
 * order. Each place lies on a cache line of its own. The program follows the list in two ways. For
 * each it prints the time of a step in nanoseconds:
 *
 *     waiting        the address of each load depends on the load before it
 *     overlapping    CHAINS loads do not depend on each other, so the processor does them at once
 *
 * Each is the least of several measurements, because other work on the machine only adds time. With
 * "huge", all of the memory lies in huge pages, and with "small" none of it. If the kernel gives no
 * huge pages, the program prints "no huge pages".
 *
 * Exit codes: 0 success, 1 the memory, the clock or the output fails, 2 usage.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { LINE = 64, CHAINS = 8, STEPS = 16000, TIMES = 7 };
static const size_t HUGE_PAGE = (size_t)2 << 20, LARGEST = (size_t)1 << 32;

static size_t number_of(const char *text, size_t least, size_t most)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || *end || end == text || number < least || number > most) {
        fprintf(stderr, "cairn-latency: %s is not a number from %zu to %zu\n", text, least, most);
        exit(2);
    }
    return (size_t)number;
}

static void *mapped(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("cairn-latency: mmap");
        exit(1);
    }
    return memory;
}

/* Returns the kibibytes of this process that lie in huge pages. */
static size_t huge_kib(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    size_t found = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "AnonHugePages:", 14) == 0)
            found = strtoull(line + 14, NULL, 10);
    }
    if (file)
        fclose(file);
    return found;
}

/* xorshift64; Marsaglia, Xorshift RNGs, 2003. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Links all places into one ring in random order (Sattolo's algorithm). Returns the first place. */
static void **ring(char *memory, size_t places, size_t stride)
{
    uint32_t *order = mapped(places * sizeof *order);
    uint64_t state = 88172645463325252U;
    for (size_t i = 0; i < places; i++)
        order[i] = (uint32_t)i;
    for (size_t i = places - 1; i > 0; i--) {
        size_t other = next_random(&state) % i;
        uint32_t moved = order[i];
        order[i] = order[other];
        order[other] = moved;
    }
    /* A place lies on another line of its stride than its neighbours, so that places with a large
     * stride do not share a few cache sets. */
    size_t lines = stride / LINE;
#define PLACE(i) ((void **)(void *)(memory + (size_t)(i) * stride + ((size_t)(i) % lines) * LINE))
    for (size_t i = 0; i < places; i++)
        *PLACE(order[i]) = PLACE(order[(i + 1) % places]);
    void **first = PLACE(order[0]);
#undef PLACE
    munmap(order, places * sizeof *order);
    return first;
}

/* Returns the CPU time of this thread. It does not grow while the thread waits for a processor. */
static double now_ns(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now)) {
        perror("cairn-latency: clock_gettime");
        exit(1);
    }
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void **followed(void **place, size_t steps)
{
    for (size_t i = 0; i < steps; i++)
        place = *place;
    /* The compiler must assume that the place is used. */
    __asm__ volatile("" : "+r"(place));
    return place;
}

static void followed_at_once(void **places[CHAINS], size_t steps)
{
    for (size_t i = 0; i < steps; i += CHAINS) {
        for (int chain = 0; chain < CHAINS; chain++)
            places[chain] = *places[chain];
    }
    for (int chain = 0; chain < CHAINS; chain++)
        __asm__ volatile("" : "+r"(places[chain]));
}

int main(int count, char **words)
{
    bool huge = count == 4 && strcmp(words[3], "huge") == 0;
    if (count != 4 || (!huge && strcmp(words[3], "small") != 0)) {
        fputs("usage: cairn-latency BYTES STRIDE huge|small\n", stderr);
        return 2;
    }
    size_t stride = number_of(words[2], LINE, HUGE_PAGE) & ~(size_t)(LINE - 1);
    size_t bytes = number_of(words[1], 2 * stride, LARGEST);
    size_t whole = (bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    char *memory = mapped(whole + HUGE_PAGE);
    memory += HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE;
    (void)madvise(memory, whole, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(memory, 0, whole);
    if (huge && huge_kib() < whole / 1024) {
        puts("no huge pages");
        return 0;
    }
    size_t places = bytes / stride;
    void **place = ring(memory, places, stride);
    /* All walks begin in the first half of the list, and far enough apart that none of them reads
     * what another one has read. Then the second half is read, which takes the first half out of a
     * cache that is at most a quarter as large as the memory. */
    void **walks[CHAINS + 1];
    for (size_t walk = 0; walk <= CHAINS; walk++) {
        walks[walk] = place;
        place = followed(place, places / 2 / (CHAINS + 1));
    }
    followed(place, places / 2);
    place = walks[CHAINS];
    double waiting = 1e18, overlapping = 1e18;
    for (int i = 0; i < TIMES; i++) {
        double start = now_ns();
        place = followed(place, STEPS);
        double middle = now_ns();
        followed_at_once(walks, STEPS);
        double end = now_ns();
        waiting = middle - start < waiting ? middle - start : waiting;
        overlapping = end - middle < overlapping ? end - middle : overlapping;
    }
    printf("%.3f %.3f\n", waiting / STEPS, overlapping / STEPS);
    return fflush(stdout) ? 1 : 0;
}
