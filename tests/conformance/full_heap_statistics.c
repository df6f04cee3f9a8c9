/* full_heap_statistics.c - one thread fills a heap of its own until memory runs out, again and
 * again. Meanwhile another thread reads the statistics, which visits all heaps. */
#include "conformance.h"

#include <cairn/cairn.h>
#include <pthread.h>
#include <stdatomic.h>

static atomic_bool over;

static void *fill(void *nothing)
{
    while (!over) {
        struct cairn_heap *heap = cairn_heap_create();
        while (heap != NULL && cairn_heap_malloc(heap, 1000) != NULL)
            ;
        cairn_heap_destroy(heap);
    }
    return nothing;
}

int main(void)
{
    pthread_t thread;
    cairn_limit(4 << 20);
    if (pthread_create(&thread, NULL, fill, NULL) != 0)
        return 1;
    for (int i = 0; i < 20000; i++) {
        struct cairn_stats stats;
        cairn_statistics(&stats);
    }
    over = true;
    return pthread_join(thread, NULL);
}
