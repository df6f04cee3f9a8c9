/* cairn.c - the functions of cairn.h. Also reads the options when the library is loaded, and writes
 * the statistics when the process ends. */
#include <cairn/cairn.h>

#include "abi/abi.h"
#include "alloc/background.h"
#include "alloc/emergency.h"
#include "alloc/heap_trim.h"
#include "alloc/huge_page_timing.h"
#include "alloc/large_guard.h"
#include "alloc/learning_control.h"
#include "alloc/options.h"
#include "alloc/page_heap.h"
#include "alloc/quarantine.h"
#include "alloc/run_cache_learning.h"
#include "alloc/shared_heap.h"
#include "alloc/site.h"
#include "alloc/stats.h"
#include "alloc/stats_text.h"
#include "alloc/walk.h"

#include <string.h>
#include <unistd.h>

EXPORT void cairn_free(void *block)
{
    front_free(block, __builtin_return_address(0));
}

EXPORT void *cairn_malloc(size_t size)
{
    void *p = front_malloc_quick(size);
    return LIKELY(p != NULL) ? p : names_malloc_slow(size);
}

EXPORT void *cairn_calloc(size_t count, size_t size)
{
    void *p = front_calloc_quick(count, size);
    return LIKELY(p != NULL) ? p : names_calloc_slow(count, size);
}

EXPORT void *cairn_realloc(void *block, size_t size)
{
    return resized(block, size);
}

EXPORT void *cairn_aligned_alloc(size_t alignment, size_t size)
{
    return aligned(alignment, size, __builtin_return_address(0));
}

EXPORT size_t cairn_usable_size(const void *block)
{
    return front_usable_size(block, __builtin_return_address(0));
}

EXPORT void cairn_statistics(struct cairn_stats *stats)
{
    stats_gather(stats);
}

static size_t write_text(char *memory, size_t capacity,
                         void write(struct text *, const struct cairn_stats *))
{
    if (capacity == 0)
        return 0;
    struct cairn_stats stats;
    stats_gather(&stats);
    struct text text = text_over(memory, capacity);
    write(&text, &stats);
    return text.truncated ? 0 : text.length;
}

EXPORT size_t cairn_statistics_json(char *text, size_t capacity)
{
    return write_text(text, capacity, stats_write_json);
}

EXPORT size_t cairn_statistics_prometheus(char *text, size_t capacity)
{
    return write_text(text, capacity, stats_write_prometheus);
}

EXPORT bool cairn_walk(cairn_visitor visit, void *context)
{
    return walk_blocks(NULL, visit, context);
}

EXPORT void cairn_collect(void)
{
    names_collect();
}

EXPORT size_t cairn_purge(size_t keep_bytes)
{
    return thread_may_lock() ? page_heap_purge(keep_bytes) : 0;
}

EXPORT size_t cairn_limit(size_t bytes)
{
    return thread_may_lock() ? page_heap_limit(bytes) : 0;
}

EXPORT void cairn_check(void)
{
    if (!thread_may_lock())
        return;
    if (names_has_heap())
        heap_check(thread_heap);
    shared_heap_check_all();
    heap_check_lists();
    page_heap_check();
    site_check();
}

/* --- heaps ------------------------------------------------------------------------------------ */

/* struct cairn_heap is the opaque public name of struct heap. */
static struct heap *heap_of(struct cairn_heap *heap)
{
    return (struct heap *)heap;
}

/* Allocates in a heap. If there is no memory, gives back the free memory that the calling thread
 * keeps, and tries again. */
static void *allocate_in_heap(struct cairn_heap *heap, size_t size, size_t alignment, bool *zero,
                              const void *caller)
{
    if (UNLIKELY(!thread_may_lock())) {
        *zero = true;
        return or_enomem(emergency_allocate(size, alignment));
    }
    void *p = front_heap_allocate(heap_of(heap), size, alignment, zero, caller);
    if (p == NULL && !large_is_impossible(size) && !large_is_impossible(alignment)) {
        names_collect();
        p = front_heap_allocate(heap_of(heap), size, alignment, zero, caller);
    }
    if (UNLIKELY(site_is_counted()) && p != NULL) {
        struct slab *slab = slab_at(region_index(p));
        if (slab->kind == RUN_LARGE)
            site_take(slab, slab->slices, caller, false, NULL);
    }
    return or_enomem(p);
}

EXPORT struct cairn_heap *cairn_heap_create(void)
{
    if (!thread_may_lock())
        return or_enomem(NULL);
    struct heap *heap = shared_heap_create();
    if (heap == NULL) {
        names_collect();
        heap = shared_heap_create();
    }
    return or_enomem(heap);
}

EXPORT void cairn_heap_destroy(struct cairn_heap *heap)
{
    if (heap != NULL && thread_may_lock())
        shared_heap_destroy(heap_of(heap));
}

EXPORT void cairn_heap_release(struct cairn_heap *heap)
{
    if (heap != NULL && thread_may_lock())
        shared_heap_release(heap_of(heap));
}

EXPORT void *cairn_heap_malloc(struct cairn_heap *heap, size_t size)
{
    bool zero;
    return allocate_in_heap(heap, size, 1, &zero, __builtin_return_address(0));
}

EXPORT void *cairn_heap_calloc(struct cairn_heap *heap, size_t count, size_t size)
{
    size_t bytes;
    bool zero = false;
    if (__builtin_mul_overflow(count, size, &bytes))
        return or_enomem(NULL);
    void *p = allocate_in_heap(heap, bytes, 1, &zero, __builtin_return_address(0));
    if (p != NULL && !zero)
        memset(p, 0, bytes);
    return p;
}

EXPORT void *cairn_heap_aligned_alloc(struct cairn_heap *heap, size_t alignment, size_t size)
{
    if (!power_of_two(alignment)) {
        errno = EINVAL;
        return NULL;
    }
    bool zero;
    return allocate_in_heap(heap, size, alignment, &zero, __builtin_return_address(0));
}

EXPORT void *cairn_heap_realloc(struct cairn_heap *heap, void *block, size_t size)
{
    const void *caller = __builtin_return_address(0);
    bool zero;
    if (block == NULL)
        return allocate_in_heap(heap, size, 1, &zero, caller);
    if (size == 0) {
        front_free(block, __builtin_return_address(0));
        return NULL;
    }
    if (front_resize(block, size, caller))
        return block;
    void *moved = allocate_in_heap(heap, size, 1, &zero, caller);
    if (moved != NULL) {
        size_t have = front_usable_size(block, __builtin_return_address(0));
        memcpy(moved, block, size < have ? size : have);
        front_free(block, __builtin_return_address(0));
    }
    return moved;
}

EXPORT bool cairn_heap_walk(struct cairn_heap *heap, cairn_visitor visit, void *context)
{
    return walk_blocks(heap_of(heap), visit, context);
}

void names_collect(void)
{
    if (!thread_may_lock())
        return;
    if (names_has_heap()) {
        struct heap *heap = thread_heap; /* the calls below may put it aside */
        if (CAIRN_HARDENED)
            quarantine_drain(heap);
        heap_collect(heap);
        heap_trim_all(heap);
    }
    heap_sweep();
    heap_trim_ended();
}

/* --- on stderr -------------------------------------------------------------------------------- */

static void write_to_stderr(const struct text *text)
{
    for (size_t done = 0; done < text->length;) {
        ssize_t written = write(STDERR_FILENO, text->data + done, text->length - done);
        if (written <= 0)
            break;
        done += (size_t)written;
    }
}

void names_tell(enum options_statistics how)
{
    static const char none[] = "cairn: no statistics, because the process ended or forked in the "
                               "middle of an allocation\n";
    if (!thread_may_lock()) {
        os_say(none, sizeof none - 1);
        return;
    }
    int saved = errno;
    struct cairn_stats stats;
    stats_gather(&stats);
    bool has_sites = how == OPTIONS_STATISTICS_JSON && site_is_counted();
    size_t room = has_sites ? CAIRN_SITES_BYTES : CAIRN_PROMETHEUS_BYTES;
    char *memory = os_map(room, 1, 0); /* too large for some stacks */
    if (memory != NULL) {
        struct text text = text_over(memory, room);
        if (how == OPTIONS_STATISTICS_JSON) {
            stats_write_json(&text, &stats);
            text_add_char(&text, '\n');
        } else if (how == OPTIONS_STATISTICS_PROMETHEUS) {
            stats_write_prometheus(&text, &stats);
        } else {
            stats_write_lines(&text, &stats);
        }
        write_to_stderr(&text);
        os_unmap(memory, room);
    }
    errno = saved;
}

static bool never(void)
{
    return false;
}

static bool always(void)
{
    return true;
}

static void begin_guarding(char **environment)
{
    static const char line[] = "cairn: CAIRN_GUARDED is not a number such as 1000, so no block is "
                               "guarded\n";
    uint32_t every;
    enum options_limit given = options_guarded(environment, &every);
    if (given == OPTIONS_LIMIT_GIVEN)
        alloc_guard(every);
    else if (given == OPTIONS_LIMIT_WRONG)
        os_say(line, sizeof line - 1);
}

/* Reads the options at load. The C library may not have set `environ` yet. The environment then
 * comes from the constructor's argument, which only glibc passes. */
__attribute__((constructor)) static void begin_with_options(int argc, char **argv,
                                                            char **given_environment)
{
    (void)argc, (void)argv;
    char **environment = environ != NULL ? environ : given_environment;
    if (!options_are_given(environment))
        return;
    if (options_sites(environment))
        alloc_count_sites();
    if (!CAIRN_HARDENED && options_keep_by_place(environment))
        alloc_keep_by_place();
    enum options_huge huge = options_huge_pages(environment);
    if (huge != OPTIONS_HUGE_AUTO)
        huge_page_want(huge == OPTIONS_HUGE_ALWAYS ? HUGE_PAGE_ALWAYS : HUGE_PAGE_NEVER);
    enum options_policy policy = options_policy(environment);
    if (policy == OPTIONS_POLICY_FROZEN)
        learning_freeze();
    else if (policy == OPTIONS_POLICY_UCB1 && !CAIRN_HARDENED && !options_background(environment))
        run_cache_learning_begin();
    if (options_trace(environment))
        learning_trace();
    if (options_purge_lazily(environment))
        page_heap_purge_lazily();
    enum options_move move = options_move(environment);
    if (move != OPTIONS_MOVE_AUTO)
        large_may_move = move == OPTIONS_MOVE_NEVER ? never : always;
    begin_guarding(environment);
    if (CAIRN_HARDENED && options_hardened_full(environment))
        large_guard_lift_limit();
    if (options_background(environment))
        background_want();
    size_t bytes;
    enum options_limit given = options_limit(environment, &bytes);
    if (given == OPTIONS_LIMIT_GIVEN)
        page_heap_limit(bytes);
    if (given != OPTIONS_LIMIT_WRONG)
        return;
    static const char line[] = "cairn: CAIRN_LIMIT is not a size such as 800M or 2G, so there is "
                               "no limit\n";
    os_say(line, sizeof line - 1);
}

/* A library that is never closed reports faults until the process has ended, because destructors of
 * other libraries may run after this one. */
__attribute__((destructor)) static void end_guarding(void)
{
    if (guarded_is_on() && background_may_be_closed())
        guarded_end();
}

__attribute__((destructor)) static void write_statistics_at_exit(void)
{
    enum options_statistics wanted = options_statistics();
    if (wanted != OPTIONS_STATISTICS_NONE)
        names_tell(wanted);
}
