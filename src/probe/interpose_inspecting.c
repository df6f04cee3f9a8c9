/* interpose_inspecting.c - glibc's functions that inspect or tune the allocator. They hold its
 * locks for a long time. A thread in one of them must not be asked to trim (trim.h). The functions
 * are not operations, so nothing is counted.
 *
 * The file does not include <malloc.h>: mallinfo2() is declared there only since glibc 2.33.
 */
#include "probe/next.h"
#include "probe/thread_state.h"

#include <stdio.h>

#define INTERPOSED __attribute__((visibility("default")))

struct inspected {
    int fields[10]; /* struct mallinfo */
};

struct inspected_wide {
    size_t fields[10]; /* struct mallinfo2 */
};

/* Calls libc's function while the thread is marked. If an older glibc has no such function, the
 * result is all zeroes. */
#define FUNCTION(type, name, PARAMETERS, ARGUMENTS)                                                \
    type name PARAMETERS;                                                                          \
    INTERPOSED type name PARAMETERS                                                                \
    {                                                                                              \
        static type(*real) PARAMETERS;                                                             \
        type result = {0};                                                                         \
        if (UNLIKELY(real == NULL))                                                                \
            next_find(&real, #name);                                                               \
        bool before = thread_state.inspecting;                                                     \
        thread_state.inspecting = true;                                                            \
        if (LIKELY(real != NULL))                                                                  \
            result = real ARGUMENTS;                                                               \
        thread_state.inspecting = before;                                                          \
        return result;                                                                             \
    }

FUNCTION(struct inspected, mallinfo, (void), ())
FUNCTION(struct inspected_wide, mallinfo2, (void), ())
FUNCTION(int, malloc_info, (int options, FILE *to), (options, to))
FUNCTION(int, mallopt, (int parameter, int value), (parameter, value))

void malloc_stats(void);
INTERPOSED void malloc_stats(void)
{
    static void (*real)(void);
    if (UNLIKELY(real == NULL))
        next_find(&real, "malloc_stats");
    bool before = thread_state.inspecting;
    thread_state.inspecting = true;
    if (LIKELY(real != NULL))
        real();
    thread_state.inspecting = before;
}
