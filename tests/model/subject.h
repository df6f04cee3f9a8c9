/* subject.h - the code under test, and functions that only a test may call. */
#ifndef CAIRN_MODEL_SUBJECT_H
#define CAIRN_MODEL_SUBJECT_H

#include "alloc/alloc.h"

/* The fast paths, compiled with the sanitizer's calls. A block freed by its owner goes to the slab
 * at once. */
void *subject_malloc(size_t size);
void subject_free(void *p);

#endif
