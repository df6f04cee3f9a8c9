/* conformance.h - what the programs here share. They know malloc by its names alone, so that the same source runs with
 * the allocator preloaded and with it linked in; what libc's headers lack is looked up by name. */
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

/* A function of the process by its name, as any type; the program ends without it. */
static inline void *named(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found == NULL) {
        fprintf(stderr, "there is no %s\n", name);
        _exit(1);
    }
    return found;
}

/* Cairn's classes are multiples of 16 bytes, glibc's are 8 more: whose malloc is it? */
static inline void require_cairn(void)
{
    void *p = malloc(33);
    if (malloc_usable_size(p) % 16 != 0) {
        fprintf(stderr, "malloc is not Cairn's\n");
        _exit(1);
    }
    free(p);
}

/* xorshift64*: the same everywhere. */
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

/* Kilobytes after `name` in /proc/self/status. */
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
