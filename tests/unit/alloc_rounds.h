/* alloc_rounds.h - lets a thread's heap be released in the second round of thread destructors, not
 * in the last.
 *
 * CMakeLists.txt includes it into thread.c by force for the thread sanitizer. That sanitizer
 * forgets a thread in the last round, and crashes if instrumented code runs on it afterwards.
 */
#ifndef CAIRN_ALLOC_ROUNDS_H
#define CAIRN_ALLOC_ROUNDS_H

#include <limits.h>

#undef PTHREAD_DESTRUCTOR_ITERATIONS
#define PTHREAD_DESTRUCTOR_ITERATIONS 2

#endif
