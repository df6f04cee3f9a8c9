#include "probe/residence.h"

#include "probe/shadow.h"
#include "probe/stub.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

static uint64_t page_bytes(void)
{
    return getauxval(AT_PAGESZ);
}

static long open_own(const char *path)
{
    return stub_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
}

/* The beginning of a file of the kernel's as text; false: it is not to be had. */
static bool read_text(const char *path, char *text, size_t bytes)
{
    long fd = open_own(path);
    if (stub_failed(fd))
        return false;
    long length = stub_call3(SYS_read, fd, (long)text, (long)bytes - 1);
    stub_call3(SYS_close, fd, 0, 0);
    text[stub_failed(length) ? 0 : length] = '\0';
    return !stub_failed(length);
}

uint64_t residence_bytes(void)
{
    char text[128];
    if (!read_text("/proc/self/statm", text, sizeof text))
        return 0;
    const char *second = strchr(text, ' ');
    if (second == NULL)
        return 0;
    char *third;
    uint64_t resident = strtoull(second + 1, &third, 10), of_files = strtoull(third, NULL, 10);
    return (resident > of_files ? resident - of_files : 0) * page_bytes();
}

static uint64_t huge_bytes(void)
{
    static const char name[] = "AnonHugePages:";
    static char text[2048]; /* the stack may be small */
    if (!read_text("/proc/self/smaps_rollup", text, sizeof text))
        return RESIDENCE_UNKNOWN;
    const char *found = strstr(text, name);
    return found == NULL ? RESIDENCE_UNKNOWN : strtoull(found + sizeof name - 1, NULL, 10) << 10;
}

/* Pages of an extent that are resident, no file's, and not noted. */
static uint64_t unasked_pages(long pagemap, const struct shadow_leaf *leaf, size_t extent)
{
    static uint64_t entries[SHADOW_EXTENT_PAGES]; /* proc_pid_pagemap(5) */
    const uint64_t present = UINT64_C(1) << 63, of_file = UINT64_C(1) << 61;
    size_t first = extent * SHADOW_EXTENT_PAGES;
    uintptr_t page = (leaf->start >> SHADOW_PAGE_SHIFT) + first;
    long got = stub_call(SYS_pread64, pagemap, (long)entries, sizeof entries,
                         (long)(page * sizeof entries[0]), 0, 0);
    uint64_t count = 0;
    for (size_t i = 0; !stub_failed(got) && i < (size_t)got / sizeof entries[0]; i++)
        count += (entries[i] & (present | of_file)) == present && !shadow_page_is_noted(leaf, first + i);
    return count;
}

struct residence residence_look(void)
{
    struct residence found = {.unasked_bytes = RESIDENCE_UNKNOWN, .huge_bytes = RESIDENCE_UNKNOWN};
    if (page_bytes() != 1 << SHADOW_PAGE_SHIFT)
        return found;
    long pagemap = open_own("/proc/self/pagemap");
    if (stub_failed(pagemap))
        return found;
    uint64_t pages = 0;
    for (const struct shadow_leaf *leaf = shadow_first(); leaf != NULL; leaf = leaf->next)
        for (size_t extent = 0; extent < SHADOW_EXTENTS; extent++)
            if (atomic_load_explicit(&leaf->noted[extent], memory_order_relaxed) != 0)
                pages += unasked_pages(pagemap, leaf, extent);
    stub_call3(SYS_close, pagemap, 0, 0);
    found.unasked_bytes = pages << SHADOW_PAGE_SHIFT;
    if (found.unasked_bytes >= RESIDENCE_HUGE_LEAST)
        found.huge_bytes = huge_bytes();
    return found;
}
