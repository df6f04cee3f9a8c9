/* subject.h - the code under test, and what only a test may ask of it. */
#ifndef CAIRN_MODEL_SUBJECT_H
#define CAIRN_MODEL_SUBJECT_H

#include "alloc/alloc.h"

/* The fast paths, with the sanitizer's calls in them. */
void *subject_malloc(size_t size);
void subject_free(void *p);

/* Of a class: the first slab on the list of orphans, by slice index; its lock, behind which the list lies. */
uint32_t subject_orphans(unsigned class);
const struct lock *subject_orphans_lock(unsigned class);

#endif
