/* glibc.c - the names that glibc adds to ISO C and POSIX. The statistics that they return describe
 * our heap as closely as glibc's terms allow. */
#include "abi/abi.h"
#include "alloc/page_heap.h"
#include "alloc/stats.h"
#include "base/text.h"

#include <limits.h>
#include <malloc.h>
#include <stdio.h>

enum { MXFAST_MOST = 160 }; /* glibc refuses a larger M_MXFAST */

/* Changes nothing, because the things that glibc's parameters tune do not exist here, or tune
 * themselves. Returns the same as glibc, so that a program that checks the result goes on. */
EXPORT int mallopt(int parameter, int value)
{
    return parameter != M_MXFAST || (value >= 0 && value <= MXFAST_MOST);
}

/* Translates our statistics into glibc's terms. The "arena" holds the small blocks. An "hblk" is a
 * large block, which glibc would have mapped. All other resident memory counts as free memory of
 * the arena. */
static struct mallinfo2 info(void)
{
    struct cairn_stats stats;
    stats_gather(&stats);
    /* The values in `stats` were read at different moments. Another thread may have allocated or
     * freed in between, so that `small` exceeds `arena`. */
    size_t small = stats.live_bytes - stats.large_bytes;
    size_t arena =
        stats.resident_bytes > stats.large_bytes ? stats.resident_bytes - stats.large_bytes : 0;
    if (small > arena)
        arena = small;
    size_t free_blocks = 0;
    for (size_t i = 0; i < CAIRN_CLASS_COUNT; i++)
        free_blocks += stats.classes[i].block_count - stats.classes[i].live_count;
    return (struct mallinfo2){
        .arena = arena,
        .ordblks = free_blocks,
        .hblks = stats.large_count,
        .hblkhd = stats.large_bytes,
        .uordblks = small,
        .fordblks = arena - small,
        .keepcost = stats.idle_bytes, /* malloc_trim() would give it back */
    };
}

EXPORT struct mallinfo2 mallinfo2(void)
{
    return info();
}

static int at_most_int(size_t value)
{
    return value > INT_MAX ? INT_MAX : (int)value;
}

static struct mallinfo old_info(void)
{
    struct mallinfo2 now = info();
    return (struct mallinfo){
        .arena = at_most_int(now.arena),
        .ordblks = at_most_int(now.ordblks),
        .hblks = at_most_int(now.hblks),
        .hblkhd = at_most_int(now.hblkhd),
        .uordblks = at_most_int(now.uordblks),
        .fordblks = at_most_int(now.fordblks),
        .keepcost = at_most_int(now.keepcost),
    };
}

EXPORT struct mallinfo mallinfo(void)
{
    return old_info();
}

EXPORT int malloc_trim(size_t pad)
{
    if (!thread_may_lock())
        return 0;
    size_t before = page_heap_statistics().purged_bytes;
    names_collect(); /* gives back the free pages in slabs */
    page_heap_purge(pad);
    return page_heap_statistics().purged_bytes > before;
}

EXPORT void malloc_stats(void)
{
    names_tell(OPTIONS_STATISTICS_LINES);
}

/* --- malloc_info(): glibc's document, with one heap ------------------------------------------- */

static void attribute(struct text *text, const char *name, uint64_t value)
{
    text_add_char(text, ' ');
    text_add(text, name);
    text_add(text, "=\"");
    text_add_unsigned(text, value);
    text_add_char(text, '"');
}

static void sizes(struct text *text, const struct cairn_stats *stats)
{
    text_add(text, "<sizes>\n");
    size_t smaller = 0; /* block size of the next smaller class */
    for (size_t i = 0; i < CAIRN_CLASS_COUNT; i++) {
        const struct cairn_class_stats *class = &stats->classes[i];
        size_t free_blocks = class->block_count - class->live_count;
        if (free_blocks > 0) {
            text_add(text, "  <size");
            attribute(text, "from", smaller + 1);
            attribute(text, "to", class->block_bytes);
            attribute(text, "total", free_blocks * class->block_bytes);
            attribute(text, "count", free_blocks);
            text_add(text, "/>\n");
        }
        smaller = class->block_bytes;
    }
    text_add(text, "</sizes>\n");
}

static void total(struct text *text, const char *element, const char *type, uint64_t count,
                  uint64_t bytes)
{
    text_add_char(text, '<');
    text_add(text, element);
    text_add(text, " type=\"");
    text_add(text, type);
    text_add_char(text, '"');
    if (count != UINT64_MAX)
        attribute(text, "count", count);
    attribute(text, "size", bytes);
    text_add(text, "/>\n");
}

static void totals(struct text *text, const struct cairn_stats *stats)
{
    size_t free_blocks = 0;
    size_t free_bytes = 0;
    for (size_t i = 0; i < CAIRN_CLASS_COUNT; i++) {
        size_t count = stats->classes[i].block_count - stats->classes[i].live_count;
        free_blocks += count;
        free_bytes += count * stats->classes[i].block_bytes;
    }
    total(text, "total", "fast", 0, 0);
    total(text, "total", "rest", free_blocks, free_bytes);
    total(text, "system", "current", UINT64_MAX, stats->resident_bytes);
    bool now = stats->resident_bytes > stats->used_most_bytes;
    total(text, "system", "max", UINT64_MAX, now ? stats->resident_bytes : stats->used_most_bytes);
    total(text, "aspace", "total", UINT64_MAX, stats->mapped_bytes);
    total(text, "aspace", "mprotect", UINT64_MAX, stats->mapped_bytes);
}

EXPORT int malloc_info(int options, FILE *stream)
{
    if (options != 0)
        return EINVAL;
    struct cairn_stats stats;
    stats_gather(&stats);
    char memory[CAIRN_JSON_BYTES];
    struct text text = text_over(memory, sizeof memory);
    text_add(&text, "<malloc version=\"1\">\n<heap nr=\"0\">\n");
    sizes(&text, &stats);
    totals(&text, &stats);
    text_add(&text, "</heap>\n");
    totals(&text, &stats);
    total(&text, "total", "mmap", stats.large_count, stats.large_bytes);
    text_add(&text, "</malloc>\n");
    return fwrite(text.data, 1, text.length, stream) == text.length ? 0 : -1;
}

/* --- the same functions by glibc's other names, which wrappers of malloc call ----------------- */

EXPORT void cfree(void *p)
{
    front_free(p, __builtin_return_address(0));
}

EXPORT void *__libc_malloc(size_t size)
{
    void *p = front_malloc_quick(size);
    return LIKELY(p != NULL) ? p : names_malloc_slow(size);
}

EXPORT void __libc_free(void *p)
{
    front_free(p, __builtin_return_address(0));
}

EXPORT void *__libc_calloc(size_t count, size_t size)
{
    void *p = front_calloc_quick(count, size);
    return LIKELY(p != NULL) ? p : names_calloc_slow(count, size);
}

EXPORT void *__libc_realloc(void *p, size_t size)
{
    return resized(p, size);
}

EXPORT void *__libc_memalign(size_t alignment, size_t size)
{
    return names_memalign(alignment, size);
}

EXPORT void *__libc_valloc(size_t size)
{
    return names_valloc(size);
}

EXPORT void *__libc_pvalloc(size_t size)
{
    return names_pvalloc(size);
}

EXPORT int __libc_mallopt(int parameter, int value)
{
    return mallopt(parameter, value);
}

EXPORT struct mallinfo __libc_mallinfo(void)
{
    return old_info();
}
