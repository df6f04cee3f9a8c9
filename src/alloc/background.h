/* background.h - an optional thread that gives free memory back while the program sleeps.
 *
 * Without the thread, only calls that free or allocate look for idle memory, and they return memory
 * that was idle for a quarter of a second. A program that frees much and then sleeps makes no such
 * call, and keeps the memory up to the limit of purge.h. With the thread, the program's threads
 * keep neither runs nor empty slabs, because no other thread could give these back while the thread
 * that keeps them sleeps.
 *
 * The thread begins when 2 MiB are in use, and blocks all signals. The thread sleeps while the idle
 * memory is at most the slack of purge.h. It wakes when a free raises the idle memory above the
 * slack, and every few seconds. Each time it wakes, it calls heap_sweep(), which gives back slabs
 * whose blocks are all free although the slab's own thread sleeps. After a fork, the child has no
 * such thread until it allocates. The thread never ends. A plugin that contains this allocator and
 * may be closed therefore starts no such thread.
 */
#ifndef CAIRN_ALLOC_BACKGROUND_H
#define CAIRN_ALLOC_BACKGROUND_H

#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

/* 1 if the thread is wanted and has not begun, else 0. It is an int, because RISC-V cannot exchange
 * a byte. */
extern _Atomic int background_due __attribute__((visibility("hidden")));

/* Returns whether this allocator is part of a library that can be closed. */
bool background_may_be_closed(void);

/* Asks for the thread. Called before the program has a second thread. */
void background_want(void);

/* Starts the thread if it is due and 2 MiB are in use. The caller may be any thread that holds no
 * lock. If the thread cannot be created, the function writes one line to stderr, once per
 * process. */
void background_begin(void) __attribute__((cold));

/* Called after an allocation or a free, with no lock held. */
static inline void background_look(void)
{
    if (UNLIKELY(atomic_load_explicit(&background_due, memory_order_relaxed)))
        background_begin();
}

/* background_next_create points to a function that returns the pthread_create() of the libraries
 * that come after this one in the loader's order. A pthread_create() that the program itself
 * defines is thereby skipped, because it may take locks of the program. A library that is never
 * unloaded sets this pointer. The pointer is NULL if the allocator is part of a program, or of a
 * library that can be closed. */
typedef int background_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
extern background_create *(*background_next_create)(void)__attribute__((visibility("hidden")));

#endif
