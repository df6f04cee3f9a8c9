/* purge.h - when memory that nobody uses goes back to the machine.
 *
 * What was idle (free and resident) during a whole epoch of a quarter of a second, nobody needed: it is given back, but
 * for a slack of 1 MiB or a thirty-second of what is in use. So a program that shrinks does not keep what it had, and
 * one that swings faster than that makes no system call for it. There is no thread and no timer: whoever frees a run
 * looks at the clock. A program that frees much at once and then sleeps keeps at most as much as it uses, and 128 MiB.
 */
#ifndef CAIRN_ALLOC_PURGE_H
#define CAIRN_ALLOC_PURGE_H

#include "alloc/page_heap.h"

/* Frees a run, and gives back what is idle beyond the measure. Takes the page heap's lock. */
void purge_free(size_t index, size_t slices);

#endif
