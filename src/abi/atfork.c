/* atfork.c - registers this allocator's fork handlers before those of the program.
 *
 * pthread_atfork() is a part of each library that calls it, and calls this function of glibc. The
 * definition here comes before glibc's, if the allocator is preloaded or part of the program.
 *
 * - Before a fork, glibc calls the handlers in the reverse order of their registration. After the
 *   fork, it calls them in that order. So our handlers, which are registered here before those of
 *   the program, enclose theirs.
 * - glibc holds the lock of its table of handlers while it enlarges the table with malloc. A thread
 *   that forks takes that lock after our handler has taken our locks. So no thread may fork while
 *   another one registers a handler.
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

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                      void *library)
{
    thread_set_up();
    atfork_register *next =
        dlsym == NULL ? NULL : (atfork_register *)dlsym(RTLD_NEXT, "__register_atfork");
    if (next == NULL) /* a static program that never forks */
        return 0;
    thread_begin_registering();
    int error = next(prepare, parent, child, library);
    thread_end_registering();
    return error;
}

#endif
