/* atfork.c - registers this allocator's fork handlers before those of the program.
 *
 * pthread_atfork() is linked into each library that calls it. It calls glibc's function
 * __register_atfork(), which this file replaces. The definition here comes before glibc's if the
 * allocator is preloaded or part of the program. It has two purposes:
 *
 * - Our handlers must be the first that are registered. Before a fork, glibc calls handlers in the
 *   reverse order of their registration, so our handler runs last and takes our locks when the
 *   program's handlers need no more memory. After the fork, our handler runs first and drops the
 *   locks.
 * - No thread may fork while another one registers a handler. Otherwise there could be a deadlock:
 *   glibc holds the lock of its table of handlers while it enlarges the table with malloc, and so
 *   waits for our locks. A thread that forks waits for glibc's lock while it holds our locks.
 *
 * The definition is weak, because a static program has glibc's definition, too.
 */
#include "abi/abi.h"

#include <dlfcn.h>
#include <features.h>

#ifdef __GLIBC__

typedef int atfork_register(void (*)(void), void (*)(void), void (*)(void), void *);

/* A static program has no dlsym(). */
extern __typeof__(dlsym) dlsym __attribute__((weak));

EXPORT atfork_register __register_atfork __attribute__((weak));

/* Returns glibc's function, or NULL in a static program that never forks. Looks it up once: dlsym()
 * waits while another thread loads a library, and that thread may wait for this one. The first call
 * comes before any thread exists (thread_set_up() in thread.c). */
static atfork_register *next_register(void)
{
    static _Atomic(atfork_register *) found;
    atfork_register *next = atomic_load_explicit(&found, memory_order_relaxed);
    if (next == NULL && dlsym != NULL) {
        next = (atfork_register *)dlsym(RTLD_NEXT, "__register_atfork");
        atomic_store_explicit(&found, next, memory_order_relaxed);
    }
    return next;
}

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                      void *library)
{
    thread_set_up();
    atfork_register *next = next_register();
    if (next == NULL)
        return 0;
    thread_begin_registering();
    int error = next(prepare, parent, child, library);
    thread_end_registering();
    return error;
}

#endif
