/* early_handlers.c - a library of early_handlers_main.c, a program that contains libcairn.a. The
 * library's constructor registers fork handlers that allocate, before the allocator in the program
 * could register its own. The handlers take a lock that a thread of the program holds while it
 * allocates. So no handler of this library may run while the allocator's handlers hold locks. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void allocate_under_lock(size_t size);

static void allocate(void)
{
    for (size_t size = 10; size < 400000; size *= 3) {
        char *p = malloc(size);
        if (p == NULL)
            abort();
        memset(p, 1, size);
        free(p);
    }
}

void allocate_under_lock(size_t size)
{
    pthread_mutex_lock(&mutex);
    free(malloc(size));
    pthread_mutex_unlock(&mutex);
}

static void before(void)
{
    pthread_mutex_lock(&mutex);
    allocate();
}

static void after(void)
{
    allocate();
    pthread_mutex_unlock(&mutex);
}

__attribute__((constructor)) static void begin(void)
{
    pthread_atfork(before, after, after);
}
