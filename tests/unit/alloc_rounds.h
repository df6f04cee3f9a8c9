/* alloc_rounds.h - a thread's heap goes in the second round of destructors instead of the last.
 *
 * Included by force where the thread sanitizer looks on: it forgets a thread in the last round, and whatever code of ours
 * runs after that is a crash.
 */
#ifndef CAIRN_ALLOC_ROUNDS_H
#define CAIRN_ALLOC_ROUNDS_H

#include <limits.h>

#undef PTHREAD_DESTRUCTOR_ITERATIONS
#define PTHREAD_DESTRUCTOR_ITERATIONS 2

#endif
