/* conformance.h - functions shared by the programs of this folder.
 *
 * Most programs call the allocator only by libc's names, such as malloc. So the same source runs
 * with libcairn preloaded and with libcairn linked. named() looks up functions that libc's headers
 * do not declare.
 */
#ifndef CAIRN_CONFORMANCE_H
#define CAIRN_CONFORMANCE_H

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Returns the function of that name in this process, as a pointer of any type. Ends the program if
 * there is none. */
static inline void *named(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found == NULL) {
        fprintf(stderr, "this process has no function %s\n", name);
        _exit(1);
    }
    return found;
}

/* Returns a number of /proc/self/smaps_rollup in KB, such as that behind "Anonymous:". Returns -1
 * if there is none. Reads with stdio, which allocates and frees two blocks. */
static inline long rollup_kb(const char *name)
{
    char line[256];
    long kb = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            kb = strtol(line + strlen(name), NULL, 10);
    if (file != NULL)
        fclose(file);
    return kb;
}

#ifndef __GLIBC__

#include <cairn/cairn.h>

/* The functions and types of glibc's malloc.h that the programs use, for another C library. */
static inline void *pvalloc(size_t size)
{
    return ((void *(*)(size_t))named("pvalloc"))(size);
}

struct mallinfo2 {
    size_t arena, uordblks, hblkhd;
};

static inline struct mallinfo2 mallinfo2(void)
{
    void (*gather)(struct cairn_stats *) =
        (void (*)(struct cairn_stats *))named("cairn_statistics");
    struct cairn_stats stats;
    gather(&stats);
    return (struct mallinfo2){.arena = stats.resident_bytes,
                              .uordblks = stats.live_bytes - stats.large_bytes,
                              .hblkhd = stats.large_bytes};
}

static inline int malloc_trim(size_t pad)
{
    ((void (*)(void))named("cairn_collect"))();
    return ((size_t (*)(size_t))named("cairn_purge"))(pad) > 0;
}

#endif

/* Ends the program if malloc is not Cairn's. The usable sizes of the plain build are multiples of
 * 16, and those of the hardened build are the requested sizes. glibc's usable sizes are 8 bytes
 * above a multiple of 16. */
static inline void require_cairn(void)
{
    void *p = malloc(33);
    if (malloc_usable_size(p) % 16 == 8) {
        fprintf(stderr, "malloc is not Cairn's\n");
        _exit(1);
    }
    free(p);
}

/* Returns whether malloc is that of the hardened build. */
static inline bool is_hardened(void)
{
    void *p = malloc(33);
    bool result = malloc_usable_size(p) == 33;
    free(p);
    return result;
}

/* Returns the bytes of all live blocks. In the hardened build, a freed block counts until it leaves
 * quarantine, so malloc_trim() first empties the quarantine of this thread. */
static inline size_t live_bytes(void)
{
    if (is_hardened())
        malloc_trim(0);
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* Returns whether `p` is a guarded block (CAIRN_GUARDED), which lies far from `other`, a block of
 * the program that is too large to be guarded. */
static inline bool is_guarded(const void *p, const void *other)
{
    uintptr_t distance = (uintptr_t)p > (uintptr_t)other ? (uintptr_t)p - (uintptr_t)other
                                                         : (uintptr_t)other - (uintptr_t)p;
    return distance > (uintptr_t)1 << 36;
}

/* Frees a guarded block of 100 bytes twice (CAIRN_GUARDED). */
static inline void free_guarded_twice(void)
{
    void *large = malloc(1 << 20);
    void *volatile block = malloc(100);
    while (!is_guarded(block, large))
        block = malloc(100);
    free(block);
    free(block);
}

/* Returns the next random number (xorshift64*), the same on every machine. */
static inline uint64_t draw(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

static inline size_t draw_below(uint64_t *state, size_t end)
{
    return (size_t)(draw(state) >> 11) % end;
}

/* Returns the kilobytes after `name` in /proc/self/status. */
static inline long status_kb(const char *name)
{
    char line[256];
    long kb = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            kb = strtol(line + strlen(name) + 1, NULL, 10);
    if (file != NULL)
        fclose(file);
    return kb;
}

#endif
