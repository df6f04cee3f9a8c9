/* tsan_destructor_rounds.h - lets a thread's heap be released in the second round of thread
 * destructors, not in the last.
 *
 * For the thread sanitizer, CMakeLists.txt compiles thread.c with this header in front (-include).
 * That sanitizer forgets a thread in the last round, and crashes if the thread then runs
 * instrumented code.
 */
#ifndef CAIRN_TSAN_DESTRUCTOR_ROUNDS_H
#define CAIRN_TSAN_DESTRUCTOR_ROUNDS_H

#include <limits.h>

#undef PTHREAD_DESTRUCTOR_ITERATIONS
#define PTHREAD_DESTRUCTOR_ITERATIONS 2

#endif
