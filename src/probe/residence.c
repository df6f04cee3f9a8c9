#include "probe/residence.h"

#include "probe/direct_syscall.h"
#include "probe/handed_out.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/uio.h>

enum {
    PAGE_BYTES = 1 << HANDED_OUT_PAGE_SHIFT,
    EXTENT_NS = 10000, /* time of a look at 2 MiB of resident memory */
};

static uint64_t page_bytes(void)
{
    return getauxval(AT_PAGESZ);
}

static long open_own(const char *path)
{
    return direct_try(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
}

/* If another thread has installed a filter of system calls, the file stays open. */
static void close_own(long fd)
{
    (void)direct_try(SYS_close, fd, 0, 0, 0, 0, 0);
}

/* Reads the beginning of a /proc file as text. Returns false if it cannot be opened or read. */
static bool read_text(const char *path, char *text, size_t bytes)
{
    long fd = open_own(path);
    if (direct_failed(fd))
        return false;
    long length = direct_try(SYS_read, fd, (long)text, (long)bytes - 1, 0, 0, 0);
    close_own(fd);
    text[direct_failed(length) ? 0 : length] = '\0';
    return !direct_failed(length);
}

uint64_t residence_bytes(uint64_t own)
{
    static _Atomic uint64_t last; /* returned again once a sandbox forbids system calls */
    char text[128];
    if (direct_forbidden)
        return last;
    if (!read_text("/proc/self/statm", text, sizeof text))
        return direct_forbidden ? last : 0;
    const char *second = strchr(text, ' ');
    if (second == NULL)
        return 0;
    char *third;
    uint64_t resident = strtoull(second + 1, &third, 10), of_files = strtoull(third, NULL, 10);
    uint64_t others = of_files + own / page_bytes();
    last = (resident > others ? resident - others : 0) * page_bytes();
    return last;
}

/* Returns the bytes of a field that a /proc file gives in KiB, or RESIDENCE_UNKNOWN. `text` is
 * memory for the file's beginning. */
static uint64_t field(const char *path, const char *name, char *text, size_t bytes)
{
    if (!read_text(path, text, bytes))
        return RESIDENCE_UNKNOWN;
    const char *found = strstr(text, name);
    return found == NULL ? RESIDENCE_UNKNOWN : strtoull(found + strlen(name), NULL, 10) << 10;
}

uint64_t residence_peak(void)
{
    static char text[2048]; /* static: the stack may be small */
    uint64_t peak = field("/proc/self/status", "VmHWM:", text, sizeof text);
    return peak == RESIDENCE_UNKNOWN ? 0 : peak;
}

/* Returns the bytes of the process's memory that lie in huge pages. */
static uint64_t huge_bytes(void)
{
    static char text[2048]; /* static: the stack may be small */
    return field("/proc/self/smaps_rollup", "AnonHugePages:", text, sizeof text);
}

/* --- pages that were never handed out --------------------------------------------------------- */

/* Numbers of pages in one call of residence_look(). */
static struct {
    uint64_t own;    /* resident pages of the allocator */
    uint64_t pages;  /* pages of `own` that were never handed out */
    uint64_t looked; /* pages of `pages` that were read */
    uint64_t zero;   /* pages of `looked` that are filled with zeroes */
    uint64_t stride; /* every `stride`-th page of `pages` is read */
} tally;

/* Copies a page by a system call, because the program may have unmapped the page or made it
 * unreadable. Returns false if the kernel cannot read the page either. */
static bool read_page(uintptr_t page, void *copy)
{
    struct iovec to = {.iov_base = copy, .iov_len = PAGE_BYTES};
    struct iovec from = {.iov_base = (void *)page, .iov_len = PAGE_BYTES};
    long process = direct_try(SYS_getpid, 0, 0, 0, 0, 0, 0);
    return direct_try(SYS_process_vm_readv, process, (long)&to, 1, (long)&from, 1, 0) == PAGE_BYTES;
}

static void tally_page(uintptr_t page)
{
    static uint64_t copy[PAGE_BYTES / sizeof(uint64_t)]; /* static: the stack may be small */
    if (!read_page(page, copy))
        return;
    uint64_t any = 0;
    for (size_t i = 0; i < COUNT_OF(copy); i++)
        any |= copy[i];
    tally.looked++;
    tally.zero += any == 0;
}

/* Sets one bit of `resident` for each page of the extent that is resident and belongs to no file.
 * Returns false if pagemap cannot be read. */
static bool read_extent(long pagemap, uintptr_t page,
                        uint64_t resident[HANDED_OUT_EXTENT_PAGES / 64])
{
    static uint64_t entries[HANDED_OUT_EXTENT_PAGES]; /* proc_pid_pagemap(5) */
    const uint64_t present = UINT64_C(1) << 63, of_file = UINT64_C(1) << 61;
    long got = direct_try(SYS_pread64, pagemap, (long)entries, sizeof entries,
                          (long)(page * sizeof entries[0]), 0, 0);
    memset(resident, 0, HANDED_OUT_EXTENT_PAGES / 8);
    for (size_t i = 0; !direct_failed(got) && i < (size_t)got / sizeof entries[0]; i++)
        resident[i / 64] |= (uint64_t)((entries[i] & (present | of_file)) == present) << i % 64;
    return !direct_failed(got);
}

/* Adds one extent to the tally. The allocator owns at most `held` pages there. Of these, `noted`
 * were handed out, so at most `held - noted` were never handed out. Any further resident page
 * belongs to another owner. */
static void tally_extent(long pagemap, const struct handed_out_leaf *leaf, size_t extent)
{
    uint64_t resident[HANDED_OUT_EXTENT_PAGES / 64];
    unsigned noted = atomic_load_explicit(&leaf->noted[extent], memory_order_relaxed);
    unsigned held = handed_out_held(leaf, extent);
    size_t first = extent * HANDED_OUT_EXTENT_PAGES;
    uintptr_t page = (leaf->start >> HANDED_OUT_PAGE_SHIFT) + first;
    if (noted == 0 || !read_extent(pagemap, page, resident))
        return;
    unsigned all = 0;
    for (size_t i = 0; i < COUNT_OF(resident); i++)
        all += (unsigned)__builtin_popcountll(resident[i]);
    tally.own += all < held ? all : held;
    if (held <= noted)
        return;
    uint64_t most = tally.pages + held - noted;
    for (size_t i = 0; i < HANDED_OUT_EXTENT_PAGES && tally.pages < most; i++)
        if ((resident[i / 64] >> i % 64 & 1) != 0 && !handed_out_page_is_noted(leaf, first + i) &&
            ++tally.pages % tally.stride == 0)
            tally_page((page + i) << HANDED_OUT_PAGE_SHIFT);
}

static _Atomic bool counts_huge; /* residence_count_huge() was called */

void residence_count_huge(void)
{
    counts_huge = true;
}

/* To count huge pages, the kernel looks at each page once more. */
uint64_t residence_look_ns(uint64_t resident)
{
    uint64_t once_ns = (resident >> HANDED_OUT_EXTENT_SHIFT) * EXTENT_NS;
    return counts_huge ? 2 * once_ns : once_ns;
}

struct residence residence_look(void)
{
    struct residence found = {RESIDENCE_UNKNOWN, RESIDENCE_UNKNOWN, RESIDENCE_UNKNOWN,
                              RESIDENCE_UNKNOWN};
    if (page_bytes() != PAGE_BYTES)
        return found;
    long pagemap = open_own("/proc/self/pagemap");
    if (direct_failed(pagemap))
        return found;
    /* The first look reads one in 16 of the pages that were never handed out: 128 pages if these
     * pages take 8 MiB. The more such pages a look finds, the smaller is the part that the next
     * look reads. */
    tally.stride = 16 + tally.pages / 128;
    tally.own = tally.pages = tally.looked = tally.zero = 0;
    for (const struct handed_out_leaf *leaf = handed_out_first(); leaf != NULL; leaf = leaf->next)
        for (size_t extent = 0; extent < HANDED_OUT_EXTENTS; extent++)
            tally_extent(pagemap, leaf, extent);
    close_own(pagemap);
    if (direct_forbidden) /* the tally may be incomplete */
        return found;
    found.own_bytes = tally.own << HANDED_OUT_PAGE_SHIFT;
    found.unasked_bytes = tally.pages << HANDED_OUT_PAGE_SHIFT;
    if (tally.pages < tally.stride)
        found.unwritten_bytes = 0;
    else if (tally.looked > 0)
        found.unwritten_bytes = tally.pages * tally.zero / tally.looked << HANDED_OUT_PAGE_SHIFT;
    bool much =
        found.unwritten_bytes >= RESIDENCE_HUGE_LEAST && found.unwritten_bytes != RESIDENCE_UNKNOWN;
    if (much || counts_huge)
        found.huge_bytes = huge_bytes();
    return found;
}
