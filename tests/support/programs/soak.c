/* A program whose memory over time is of a known kind, for the tests of 'cairn soak'.
 *
 *     soak KIND [SPEED [SECONDS]]
 *
 * It works for SECONDS, or until it is killed if SECONDS is missing. All rates except those of
 * cycles are multiplied by SPEED. KIND is
 *
 *     leak-1k, leak-32k, leak-1m   loses 1 KiB, 32 KiB or 1 MiB a second; other blocks come and go
 *     leak-cycles      loses 256 KiB a second, and 8 MiB more come and go in cycles of 2 s
 *     fragments        fills 64 MiB with blocks of 256 bytes, and frees all but one in 16
 *     fragments-late   the same as fragments, but only after 5 seconds divided by SPEED
 *     retains          fills 64 MiB with blocks of 4 KiB, and frees all but the last one
 *     retains-late     the same as retains, but only after 5 seconds divided by SPEED
 *     stable           replaces random blocks of random sizes
 *     stable-noise     the same as stable, but the number of blocks wanders between bounds
 *     stable-cycles    fills 16 MiB step by step in a second, frees them at once, and repeats
 *     stable-warm      fills 16 MiB, ever more slowly, and stays there
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KIB 1024.0
#define MIB (1024.0 * KIB)

enum { TICK_MS = 5, SLOTS = 2000 };

static double speed = 1.0;
static uint64_t state = 88172645463325252u;

static uint64_t random_below(uint64_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % limit;
}

/* Seconds since the first call, multiplied by the speed. */
static double now(void)
{
    static struct timespec begin;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    if (begin.tv_sec == 0)
        begin = time;
    double seconds = (double)(time.tv_sec - begin.tv_sec);
    return (seconds + 1e-9 * (double)(time.tv_nsec - begin.tv_nsec)) * speed;
}

/* Returns a block whose bytes were all written. */
static void *block(size_t bytes)
{
    void *made = malloc(bytes);
    if (made == NULL)
        exit(1);
    memset(made, 1, bytes);
    return made;
}

static void rest(void)
{
    struct timespec pause = {.tv_nsec = TICK_MS * 1000000L};
    nanosleep(&pause, NULL);
}

/* --- blocks that come and go ------------------------------------------------------------------ */

static void *slots[SLOTS];

/* Replaces `count` random blocks. The first `used` slots have blocks. */
static void churn(int count, int used)
{
    for (int i = 0; i < count; i++) {
        uint64_t place = random_below((uint64_t)used);
        free(slots[place]);
        slots[place] = block(16 + random_below(200));
    }
}

static void set_used(int from, int to)
{
    for (int i = from; i < to; i++)
        slots[i] = block(16 + random_below(200));
    for (int i = to; i < from; i++) {
        free(slots[i]);
        slots[i] = NULL;
    }
}

/* Returns the number of used slots after one step of a random walk, which stays between 1000 and
 * SLOTS. */
static int wander(int used)
{
    int next = used + (int)random_below(401) - 200;
    return next < 1000 ? 1000 : next > SLOTS ? SLOTS : next;
}

/* --- memory that is filled and emptied -------------------------------------------------------- */

struct fill {
    void **blocks;
    size_t count, room, bytes;
};

static struct fill fill_of(double most, size_t bytes)
{
    return (struct fill){.room = (size_t)(most / (double)bytes) + 1, .bytes = bytes};
}

/* Allocates or frees blocks until the blocks have `bytes` bytes in total. */
static void fill_to(struct fill *fill, double bytes)
{
    size_t wanted = (size_t)(bytes / (double)fill->bytes);
    if (fill->blocks == NULL)
        fill->blocks = block(fill->room * sizeof *fill->blocks);
    while (fill->count < wanted && fill->count < fill->room)
        fill->blocks[fill->count++] = block(fill->bytes);
    while (fill->count > wanted)
        free(fill->blocks[--fill->count]);
}

/* Frees all blocks except every `keep`-th one, and keeps no list of the blocks that stay. */
static void thin_out(struct fill *fill, size_t keep)
{
    for (size_t i = 0; i < fill->count; i++)
        if (i % keep != 0)
            free(fill->blocks[i]);
    fill->count = 0;
}

/* --- kinds ------------------------------------------------------------------------------------ */

static double leaked;

/* Loses blocks until `bytes` bytes are lost in total. */
static void leak_to(double bytes)
{
    while (leaked + 64 <= bytes) {
        (void)!block(64 - 8);
        leaked += 64;
    }
}

static int is(const char *kind, const char *name)
{
    return strcmp(kind, name) == 0;
}

static double leak_rate(const char *kind)
{
    return is(kind, "leak-1k")    ? KIB
           : is(kind, "leak-32k") ? 32 * KIB
           : is(kind, "leak-1m")  ? MIB
                                  : 256 * KIB;
}

static double part(double value)
{
    return value - (double)(long)value;
}

/* A wave of this period that rises from 0 to 1 and falls again. */
static double wave(double time, double period)
{
    double place = 2 * part(time / period);
    return place < 1 ? place : 2 - place;
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "stable";
    speed = argc > 2 ? atof(argv[2]) : 1.0;
    double seconds = argc > 3 ? atof(argv[3]) * speed : 1e18;
    struct fill big = fill_of(64 * MIB, 4096);
    struct fill small = fill_of(64 * MIB, 256);
    int used = 1500, done = 0;
    double empty = 1, before = 0;
    set_used(0, used);
    while (now() < seconds) {
        double time = now();
        empty -= empty * (time - before < 1 ? time - before : 1) / 2;
        before = time;
        churn(40, used);
        if (strncmp(kind, "leak", 4) == 0)
            leak_to(time * leak_rate(kind));
        if (is(kind, "leak-cycles"))
            fill_to(&big, 8 * MIB * wave(time / speed, 2));
        if (is(kind, "stable-cycles"))
            fill_to(&big, 16 * MIB * part(time / speed));
        if (is(kind, "stable-warm"))
            fill_to(&big, 16 * MIB * (1 - empty));
        if (is(kind, "stable-noise")) {
            int next = wander(used);
            set_used(used, next);
            used = next;
        }
        if ((is(kind, "fragments") || (is(kind, "fragments-late") && time > 5)) && !done) {
            fill_to(&small, 64 * MIB);
            thin_out(&small, 16);
            done = 1;
        }
        if ((is(kind, "retains") || (is(kind, "retains-late") && time > 5)) && !done) {
            fill_to(&big, 64 * MIB);
            big.count--; /* the last block keeps the end of the heap in use */
            fill_to(&big, 0);
            done = 1;
        }
        rest();
    }
    return 0;
}
