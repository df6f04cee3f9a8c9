/* small_stack.c - calls the functions of the allocator in a thread with the smallest stack that
 * the system allows, and in one with 64 KiB. */
#include "conformance.h"

#include <limits.h>
#include <pthread.h>

static void *everything(void *argument)
{
    for (size_t size = 1; size < 3000000; size = size * 3 / 2 + 7) {
        void *p = malloc(size);
        void *q = calloc(3, size);
        void *r = aligned_alloc(4096, size);
        p = realloc(p, size * 2);
        if (p == NULL || q == NULL || r == NULL)
            abort();
        free(p);
        free(q);
        free(r);
    }
    malloc_trim(0);
    if (mallinfo2().arena == 0)
        abort();
    return argument;
}

int main(void)
{
    require_cairn();
    size_t smallest = (size_t)sysconf(_SC_THREAD_STACK_MIN);
    /* musl allows 2 KiB, in which not even the statistics fit. aarch64 requires 128 KiB. */
    size_t stacks[] = {smallest < 16384 ? 16384 : smallest, smallest < 65536 ? 65536 : smallest};
    for (size_t i = 0; i < COUNT(stacks); i++) {
        pthread_attr_t attributes;
        pthread_t id;
        pthread_attr_init(&attributes);
        if (pthread_attr_setstacksize(&attributes, stacks[i]) != 0 ||
            pthread_create(&id, &attributes, everything, NULL) != 0 || pthread_join(id, NULL) != 0)
            return 1;
        pthread_attr_destroy(&attributes);
    }
    return 0;
}
