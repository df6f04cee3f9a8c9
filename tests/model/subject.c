#include "subject.h"

void *subject_malloc(size_t size)
{
    void *p = alloc_malloc(size);
    unsigned class = size_class(size);
    /* Without room on the heap's list, each free goes to the slab, whose protocol is under test. */
    thread_heap->warm &= ~(UINT64_C(1) << class);
    thread_heap->room[class] = 0;
    return p;
}

void subject_free(void *p)
{
    alloc_free(p);
}
