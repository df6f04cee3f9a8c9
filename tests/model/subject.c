/* heap.c as it is, and a look at what it keeps to itself. */
#include "alloc/heap.c"

#include "subject.h"

void *subject_malloc(size_t size)
{
    return alloc_malloc(size);
}

void subject_free(void *p)
{
    alloc_free(p);
}

uint32_t subject_orphans(unsigned class)
{
    return orphans[class].first;
}

const struct lock *subject_orphans_lock(unsigned class)
{
    return &orphans[class].lock;
}
