/* background.h - a thread that gives back what nobody needs while the program sleeps; only where it is asked for.
 *
 * Without it idle memory is looked at by who frees or allocates, so that a program that frees much and then sleeps keeps what was
 * idle for less than a quarter of a second. With it threads keep no runs, nor slabs of which nothing is live: while they sleep nobody
 * else could give them back. The thread begins when 2 MiB are in use, and blocks all signals. Where nothing is idle it
 * rests until a run is freed, and looks every few seconds for slabs that wait for a thread that sleeps. In the child of a fork there
 * is none until the child allocates. It never ends: a plugin that has us within, and may be closed, has none.
 */
#ifndef CAIRN_ALLOC_BACKGROUND_H
#define CAIRN_ALLOC_BACKGROUND_H

#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

/* There is to be one, and there is none yet. */
extern _Atomic bool background_due __attribute__((visibility("hidden")));

/* There is to be one. Before the program has a second thread. */
void background_want(void);

/* Begins it, if it is time. By any thread, while background_due; not under a lock. Where none can be had, a line on stderr says so,
 * once. */
void background_begin(void) __attribute__((cold));

/* Asked by who allocated or freed, with no lock held. */
static inline void background_look(void)
{
    if (UNLIKELY(atomic_load_explicit(&background_due, memory_order_relaxed)))
        background_begin();
}

/* Set by a library that is never unloaded: finds the pthread_create() behind the program's own, which may take locks of the
 * program's. NULL: we are part of a program, or of what can be closed. */
typedef int background_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
extern background_create *(*background_next_create)(void)__attribute__((visibility("hidden")));

#endif
