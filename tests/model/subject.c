#include "subject.h"

void *subject_malloc(size_t size)
{
    void *p = alloc_malloc(size);
    unsigned class = size_class(size);
    thread_heap->warm &= ~(UINT64_C(1) << class); /* frees are to reach the slab */
    thread_heap->room[class] = 0;
    return p;
}

void subject_free(void *p)
{
    alloc_free(p);
}
