/* probe_c11_threads.c - makes threads one after the other by C11's thrd_create(). Each thread calls
 * the allocator for the first time in its destructors: it frees a block of main's.
 *
 * The argument is the number of threads.
 */
#include <stdlib.h>
#include <threads.h>

static tss_t place;

static int keep(void *block)
{
    return tss_set(place, block) != thrd_success;
}

int main(int argc, char **argv)
{
    void *volatile first = malloc(10);
    if (first == NULL || tss_create(&place, free) != thrd_success)
        return 2;
    for (int left = argc > 1 ? atoi(argv[1]) : 0; left > 0; left--) {
        thrd_t thread;
        int result;
        if (thrd_create(&thread, keep, malloc(100)) != thrd_success ||
            thrd_join(thread, &result) != thrd_success || result != 0)
            return 3;
    }
    return 0;
}
