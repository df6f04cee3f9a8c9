/* background.h - an optional thread that gives free memory back while the program sleeps.
 *
 * Without it, only calls that free or allocate look for idle memory. A program that frees much and
 * then sleeps keeps the memory that was idle for less than a quarter of a second. With it, threads
 * keep neither runs nor empty slabs: while they sleep, no other thread could give these back.
 *
 * The thread begins when 2 MiB are in use, and blocks all signals. While nothing is idle it rests
 * until a run is freed, and wakes every few seconds to sweep slabs that wait for a sleeping thread.
 * After a fork, the child has no such thread until it allocates. The thread never ends. So a plugin
 * that contains us and may be closed gets none.
 */
#ifndef CAIRN_ALLOC_BACKGROUND_H
#define CAIRN_ALLOC_BACKGROUND_H

#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

/* True if the thread is wanted and has not begun. */
extern _Atomic bool background_due __attribute__((visibility("hidden")));

/* Asks for the thread. Called before the program has a second thread. */
void background_want(void);

/* Begins the thread if 2 MiB are in use. Any thread that holds no lock may call it while
 * background_due. If no thread can be created, it writes one line to stderr, once per process. */
void background_begin(void) __attribute__((cold));

/* Called after an allocation or a free, with no lock held. */
static inline void background_look(void)
{
    if (UNLIKELY(atomic_load_explicit(&background_due, memory_order_relaxed)))
        background_begin();
}

/* Set by a library that is never unloaded. It returns the pthread_create() behind the program's
 * own, because the program's own may take locks of the program. NULL if we are part of a program,
 * or of a library that can be closed. */
typedef int background_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
extern background_create *(*background_next_create)(void)__attribute__((visibility("hidden")));

#endif
