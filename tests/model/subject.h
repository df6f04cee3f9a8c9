/* subject.h - the code under test, and what only a test may ask of it. */
#ifndef CAIRN_MODEL_SUBJECT_H
#define CAIRN_MODEL_SUBJECT_H

#include "alloc/alloc.h"

/* The fast paths, with the sanitizer's calls in them. What is freed by its owner goes to the slab at once. */
void *subject_malloc(size_t size);
void subject_free(void *p);

#endif
