/* handlers.c - a library whose constructor registers fork handlers that allocate, before the
 * process's first allocation. If the allocator registered its own handlers later, these handlers
 * would run while the allocator's handlers hold its locks, and the process would hang. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void allocate_much(void)
{
    static void *kept[300];
    for (size_t i = 0; i < 300; i++) {
        free(kept[i]);
        kept[i] = calloc(1, i * i);
        if (kept[i] == NULL)
            abort();
        memset(kept[i], 1, i * i);
    }
}

__attribute__((constructor)) static void begin(void)
{
    pthread_atfork(allocate_much, allocate_much, allocate_much);
}
