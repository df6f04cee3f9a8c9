#include "subject.h"

void *subject_malloc(size_t size)
{
    void *p = alloc_malloc(size);
    unsigned class = size_class(size);
    if ((thread_heap->warm >> class & 1) != 0) { /* frees are to reach the slab */
        thread_heap->warm &= ~(UINT64_C(1) << class);
        thread_heap->room[class] -= heap_hot(class);
    }
    return p;
}

void subject_free(void *p)
{
    alloc_free(p);
}
