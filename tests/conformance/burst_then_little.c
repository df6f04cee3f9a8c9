/* burst_then_little.c - burst_then_little BYTES KEPT MODE: allocates 48 MiB of blocks of BYTES
 * bytes and frees all of them except each KEPT-th. Then, for at most 2 seconds, the program does
 * little, as MODE says: "pairs" frees each block before it allocates the next, "mix" has 50 blocks
 * of different sizes at a time, "more" allocates 400 KB a second and frees nothing, and "nothing"
 * only reads the memory use, as the other modes do ten times a second. The program ends early when
 * little more than the memory in use is left. The kept blocks must still have their content. Prints
 * three numbers in KB: the anonymous memory before these seconds, the anonymous memory after them,
 * and the memory in use. The memory in use consists of the OS pages of the kept blocks, the array
 * of pointers to the blocks, and the memory before the burst. */
#include "conformance.h"

#include <fcntl.h>

enum { ALL = 48 << 20, SOME = 50, TICKS = 200, TICK_US = 10000 };

static const char *mode;

/* Reads the file with stdio, which allocates and frees two blocks. With "more", it calls no
 * function of the allocator, so that the allocator only sees the blocks of that mode. */
static long anonymous_kb(void)
{
    static char text[4096];
    if (strcmp(mode, "more") == 0) {
        int file = open("/proc/self/smaps_rollup", O_RDONLY);
        ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
        close(file);
        text[got < 0 ? 0 : got] = '\0';
    } else {
        FILE *file = fopen("/proc/self/smaps_rollup", "r");
        size_t got = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
        if (file != NULL)
            fclose(file);
        text[got] = '\0';
    }
    const char *found = strstr(text, "Anonymous:");
    return found == NULL ? 0 : strtol(found + strlen("Anonymous:"), NULL, 10);
}

static void do_little(uint64_t *state)
{
    char *some[SOME];
    if (strcmp(mode, "pairs") == 0)
        for (int i = 0; i < SOME; i++) {
            *(some[0] = malloc(100)) = 1;
            free(some[0]);
        }
    if (strcmp(mode, "more") == 0)
        for (int i = 0; i < 4; i++)
            *(char *)malloc(1000) = 1;
    if (strcmp(mode, "mix") == 0) {
        for (int i = 0; i < SOME; i++)
            *(some[i] = malloc(16 + draw_below(state, 4000))) = 1;
        for (int i = 0; i < SOME; i++)
            free(some[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    size_t bytes = strtoul(argv[1], NULL, 10);
    size_t each = strtoul(argv[2], NULL, 10);
    size_t count = ALL / bytes;
    mode = argv[3];
    long first = anonymous_kb();
    char **blocks = malloc(count * sizeof *blocks);
    for (size_t i = 0; i < count; i++)
        memset(blocks[i] = malloc(bytes), (int)(i % 251), bytes);
    size_t pages = 0;
    uintptr_t last = 0;
    for (size_t i = 0; i < count; i += each) { /* assumes that the addresses rise with i */
        uintptr_t from = (uintptr_t)blocks[i] >> 12;
        uintptr_t to = ((uintptr_t)blocks[i] + bytes - 1) >> 12;
        pages += to - from + 1 - (from == last);
        last = to;
    }
    for (size_t i = 0; i < count; i++)
        if (i % each != 0)
            free(blocks[i]);
    long before = anonymous_kb();
    long needed = first + (long)(pages * 4 + count * sizeof *blocks / 1024);
    long after = before;
    uint64_t state = 1;
    for (int tick = 0; tick < TICKS && (tick % 10 != 0 || after > needed * 13 / 10 + 2048);
         tick++) {
        do_little(&state);
        usleep(TICK_US);
        if (tick % 10 == 9)
            after = anonymous_kb();
    }
    for (size_t i = 0; i < count; i += each)
        for (size_t at = 0; at < bytes; at++)
            if (blocks[i][at] != (char)(i % 251))
                return 1;
    printf("%ld %ld %ld\n", before, after, needed);
    return 0;
}
