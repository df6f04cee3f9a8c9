/* The names of cairn.h, and what is told when the process ends. */
#include <cairn/cairn.h>

#include "abi/abi.h"
#include "alloc/options.h"
#include "alloc/page_heap.h"
#include "alloc/stats.h"

#include <unistd.h>

EXPORT void cairn_free(void *block)
{
    alloc_free(block);
}

EXPORT void *cairn_malloc(size_t size)
{
    void *p = alloc_malloc_quick(size);
    return LIKELY(p != NULL) ? p : names_malloc_slow(size);
}

EXPORT void *cairn_calloc(size_t count, size_t size)
{
    return or_enomem(alloc_calloc(count, size));
}

EXPORT void *cairn_realloc(void *block, size_t size)
{
    return resized(block, size);
}

EXPORT void *cairn_aligned_alloc(size_t alignment, size_t size)
{
    return aligned(alignment, size);
}

EXPORT size_t cairn_usable_size(const void *block)
{
    return alloc_usable_size(block);
}

EXPORT void cairn_statistics(struct cairn_stats *stats)
{
    stats_gather(stats);
}

EXPORT size_t cairn_statistics_json(char *text, size_t capacity)
{
    if (capacity == 0)
        return 0;
    struct cairn_stats stats;
    stats_gather(&stats);
    struct text json = text_over(text, capacity);
    stats_write_json(&json, &stats);
    return json.truncated ? 0 : json.length;
}

EXPORT size_t cairn_purge(size_t keep_bytes)
{
    return page_heap_purge(keep_bytes);
}

EXPORT void cairn_check(void)
{
    if (thread_heap != &heap_none && thread_heap != &heap_gone)
        heap_check(thread_heap);
    page_heap_check();
}

/* --- on stderr ---------------------------------------------------------------------------------------------------- */

void names_tell(bool as_json)
{
    int saved = errno;
    struct cairn_stats stats;
    stats_gather(&stats);
    char memory[CAIRN_JSON_BYTES];
    struct text text = text_over(memory, sizeof memory);
    if (as_json) {
        stats_write_json(&text, &stats);
        text_add_char(&text, '\n');
    } else {
        stats_write_lines(&text, &stats);
    }
    for (size_t done = 0; done < text.length;) {
        ssize_t written = write(STDERR_FILENO, text.data + done, text.length - done);
        if (written <= 0)
            break;
        done += (size_t)written;
    }
    errno = saved;
}

__attribute__((destructor)) static void tell_at_exit(void)
{
    enum options_statistics wanted = options_statistics();
    if (wanted != OPTIONS_STATISTICS_NONE)
        names_tell(wanted == OPTIONS_STATISTICS_JSON);
}
