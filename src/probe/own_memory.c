#include "probe/own_memory.h"

#include "base/clock.h"
#include "probe/direct_syscall.h"
#include "probe/watched.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/auxv.h>
#include <sys/mman.h>

enum { RANGES = 256, LOOKS_PART = 200 };

struct range {
    _Atomic uintptr_t start;
    _Atomic uintptr_t end;
};

static struct range mapped[RANGES], left_out[4];
static _Atomic unsigned mapped_count, left_out_count;

static _Atomic bool looking;
static bool is_child;                     /* forked, and has not called exec */
static _Atomic uint64_t private, of_file; /* the result of the last look() */
static uint64_t looks_ns;

static void add(struct range *ranges, unsigned room, _Atomic unsigned *count, const void *start,
                size_t bytes)
{
    unsigned place = atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    if (place >= room)
        return;
    atomic_store_explicit(&ranges[place].start, (uintptr_t)start, memory_order_relaxed);
    atomic_store_explicit(&ranges[place].end, (uintptr_t)start + bytes, memory_order_release);
}

void own_memory_add(const void *start, size_t bytes)
{
    add(mapped, COUNT_OF(mapped), &mapped_count, start, bytes);
}

void own_memory_leave_out(const void *start, size_t bytes)
{
    add(left_out, COUNT_OF(left_out), &left_out_count, start, bytes);
}

/* Always inlined, because the program's stack may be small. */
static inline __attribute__((always_inline)) void *map(size_t bytes)
{
    void *start = direct_map(bytes);
    if (start != NULL)
        own_memory_add(start, bytes);
    return start;
}

void *own_memory_map(size_t bytes)
{
    return map(bytes);
}

void *own_memory_map_sparse(size_t bytes)
{
    void *start = map(bytes);
    if (start != NULL)
        direct_try(SYS_madvise, (long)start, (long)bytes, MADV_NOHUGEPAGE, 0, 0, 0);
    return start;
}

/* Symbols of the linker: the beginning of this library, its end, and the beginning of its
 * zero-initialised variables (.bss). */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
extern const char __bss_start[] __attribute__((visibility("hidden")));

void own_memory_begin(void)
{
    uintptr_t page_bytes = getauxval(AT_PAGESZ);
    uintptr_t start = ((uintptr_t)__bss_start + page_bytes - 1) & ~(page_bytes - 1);
    uintptr_t end = ((uintptr_t)_end + page_bytes - 1) & ~(page_bytes - 1);
    if (!direct_forbidden)
        direct_call3(SYS_madvise, (long)start, (long)(end - start), MADV_NOHUGEPAGE);
}

/* The argument of the ioctl PAGEMAP_SCAN, struct pm_scan_arg of linux/fs.h. */
struct scan {
    uint64_t bytes, flags, start, end, walk_end, vec, vec_room, pages_most;
    uint64_t inverted, wanted, wanted_any, returned;
};

/* Adds the resident pages from `start` to `end` to `*found`, by the ioctl PAGEMAP_SCAN, which tells
 * the zero page from others. The process maps that page where it has read memory that it never
 * wrote, and the kernel does not count it as resident. Returns false before Linux 6.7. */
static bool scan_pages(long pagemap, uintptr_t start, uintptr_t end, struct own_memory *found)
{
    enum { IS_FILE = 1 << 2, IS_PRESENT = 1 << 3, IS_ZERO_PAGE = 1 << 5 };
    static struct {
        uint64_t start, end, kinds;
    } runs[64]; /* static: the stack may be small */
    const long request = (3L << 30) | (long)(sizeof(struct scan) << 16) | ('f' << 8) | 16;
    uintptr_t page_bytes = getauxval(AT_PAGESZ);
    struct scan scan = {
        .bytes = sizeof scan,
        .start = start & ~(page_bytes - 1),
        .end = (end + page_bytes - 1) & ~(page_bytes - 1),
        .vec = (uintptr_t)runs,
        .vec_room = COUNT_OF(runs),
        .wanted = IS_PRESENT,
        .returned = IS_FILE | IS_ZERO_PAGE,
    };
    while (scan.start < scan.end) {
        long got = direct_try(SYS_ioctl, pagemap, request, (long)&scan, 0, 0, 0);
        if (direct_failed(got) || scan.walk_end <= scan.start)
            return false;
        for (size_t i = 0; i < (size_t)got; i++)
            if ((runs[i].kinds & IS_FILE) != 0)
                found->of_file += runs[i].end - runs[i].start;
            else if ((runs[i].kinds & IS_ZERO_PAGE) == 0)
                found->private += runs[i].end - runs[i].start;
        scan.start = scan.walk_end;
    }
    return true;
}

/* Adds the resident pages from `start` to `end` to `*found`. proc_pid_pagemap(5) describes the
 * entries. Before Linux 6.7, only the bit `exclusive` distinguishes the zero page from others,
 * because no process maps it exclusively. In a forked child, all pages that were not written since
 * the fork lack this bit, too. So all resident pages of such a child count. */
static void add_pages(long pagemap, uintptr_t start, uintptr_t end, struct own_memory *found)
{
    static uint64_t entries[512]; /* static: the stack may be small */
    const uint64_t present = UINT64_C(1) << 63, is_file = UINT64_C(1) << 61,
                   exclusive = UINT64_C(1) << 56;
    struct own_memory before = *found;
    if (scan_pages(pagemap, start, end, found))
        return;
    *found = before;
    uintptr_t page_bytes = getauxval(AT_PAGESZ);
    uintptr_t last = (end + page_bytes - 1) / page_bytes;
    for (uintptr_t page = start / page_bytes; page < last; page += COUNT_OF(entries)) {
        size_t count = last - page < COUNT_OF(entries) ? last - page : COUNT_OF(entries);
        long got =
            direct_try(SYS_pread64, pagemap, (long)entries, (long)(count * sizeof entries[0]),
                       (long)(page * sizeof entries[0]), 0, 0);
        for (size_t i = 0; !direct_failed(got) && i < (size_t)got / sizeof entries[0]; i++) {
            if ((entries[i] & present) != 0 && (entries[i] & is_file) != 0)
                found->of_file += page_bytes;
            else if ((entries[i] & present) != 0 && (is_child || (entries[i] & exclusive) != 0))
                found->private += page_bytes;
        }
    }
}

/* Adds the pages of the library, without those that are left out. */
static void add_library(long pagemap, struct own_memory *found)
{
    uintptr_t page_bytes = getauxval(AT_PAGESZ);
    for (uintptr_t from = (uintptr_t)__ehdr_start; from < (uintptr_t)_end;) {
        uintptr_t to = (uintptr_t)_end, next = to;
        for (size_t i = 0; i < COUNT_OF(left_out); i++) {
            uintptr_t start = (left_out[i].start + page_bytes - 1) & ~(page_bytes - 1);
            uintptr_t end = left_out[i].end & ~(page_bytes - 1);
            if (start < end && from < end && start < to) {
                to = start > from ? start : from;
                next = end;
            }
        }
        add_pages(pagemap, from, to, found);
        from = next;
    }
}

static void look(void)
{
    struct own_memory found = {.private = watched_filter_bytes()};
    long pagemap =
        direct_try(SYS_openat, AT_FDCWD, (long)"/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (direct_failed(pagemap))
        return;
    add_library(pagemap, &found);
    for (size_t i = 0; i < COUNT_OF(mapped); i++) {
        uintptr_t end = atomic_load_explicit(&mapped[i].end, memory_order_acquire);
        if (end != 0)
            add_pages(pagemap, mapped[i].start, end, &found);
    }
    direct_try(SYS_close, pagemap, 0, 0, 0, 0, 0);
    if (direct_forbidden) /* the sums may be incomplete */
        return;
    atomic_store_explicit(&private, found.private, memory_order_relaxed);
    atomic_store_explicit(&of_file, found.of_file, memory_order_relaxed);
}

struct own_memory own_memory_resident(bool now, uint64_t began_ns)
{
    if (!atomic_exchange_explicit(&looking, true, memory_order_acquire)) {
        uint64_t begin = direct_now_ns();
        if (!direct_forbidden && (now || looks_ns * LOOKS_PART <= begin - began_ns)) {
            look();
            looks_ns += direct_now_ns() - begin;
        }
        atomic_store_explicit(&looking, false, memory_order_release);
    }
    return (struct own_memory){.private = atomic_load_explicit(&private, memory_order_relaxed),
                               .of_file = atomic_load_explicit(&of_file, memory_order_relaxed)};
}

static void clear(uint64_t *entries, uintptr_t first, size_t count, uintptr_t start, uintptr_t end)
{
    uintptr_t page_bytes = getauxval(AT_PAGESZ);
    uintptr_t from = start / page_bytes, to = (end + page_bytes - 1) / page_bytes;
    from = from > first ? from : first;
    to = to < first + count ? to : first + count;
    for (uintptr_t page = from; page < to; page++)
        entries[page - first] = 0;
}

void own_memory_clear(uint64_t *entries, uintptr_t first, size_t count)
{
    clear(entries, first, count, (uintptr_t)__ehdr_start, (uintptr_t)_end);
    for (size_t i = 0; i < COUNT_OF(mapped); i++) {
        uintptr_t end = atomic_load_explicit(&mapped[i].end, memory_order_acquire);
        if (end != 0)
            clear(entries, first, count, mapped[i].start, end);
    }
}

void own_memory_forked(void)
{
    atomic_store_explicit(&looking, false, memory_order_relaxed);
    is_child = true;
    looks_ns = 0;
}
