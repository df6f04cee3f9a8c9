/* handlers.c - a library whose constructor runs before the first allocation and registers fork
 * handlers that allocate. These are the innermost handlers of the process. So they run at a time
 * when the allocator's own fork handlers might hold locks. */
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
