/* next.h - the functions behind ours: what the program would have called without us.
 *
 * Found once, by the loader's search after this library, each under its own name; NULL: nobody has it. Finding them may
 * allocate (dlsym does, in old libcs), before there is anybody to ask: next_early_block() serves that.
 */
#ifndef CAIRN_PROBE_NEXT_H
#define CAIRN_PROBE_NEXT_H

#include "base/base.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/types.h>

typedef void *next_new(size_t size);
typedef void *next_new_aligned(size_t size, size_t alignment);
typedef void *next_new_nothrow(size_t size, const void *nothrow);
typedef void *next_new_aligned_nothrow(size_t size, size_t alignment, const void *nothrow);
typedef void next_delete(void *block);
typedef void next_delete_sized(void *block, size_t size);
typedef void next_delete_aligned(void *block, size_t alignment);
typedef void next_delete_sized_aligned(void *block, size_t size, size_t alignment);
typedef void next_delete_nothrow(void *block, const void *nothrow);
typedef void next_delete_aligned_nothrow(void *block, size_t alignment, const void *nothrow);

/* The operators of one kind, plain or for arrays, in the order of their names in exports.map. */
struct next_operators {
    next_new *new;
    next_new_nothrow *new_nothrow;
    next_new_aligned *new_aligned;
    next_new_aligned_nothrow *new_aligned_nothrow;
    next_delete *delete;
    next_delete_sized *delete_sized;
    next_delete_nothrow *delete_nothrow;
    next_delete_aligned *delete_aligned;
    next_delete_sized_aligned *delete_sized_aligned;
    next_delete_aligned_nothrow *delete_aligned_nothrow;
};

struct next {
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*reallocarray)(void *, size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*memalign)(size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    size_t (*malloc_usable_size)(void *);
    int (*malloc_trim)(size_t);
    void (*free_sized)(void *, size_t);
    void (*free_aligned_sized)(void *, size_t, size_t);

    void *(*mmap)(void *, size_t, int, int, int, off_t);
    int (*munmap)(void *, size_t);
    int (*madvise)(void *, size_t, int);
    int (*mprotect)(void *, size_t, int);
    void *(*sbrk)(intptr_t);

    int (*pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    int (*pthread_sigmask)(int, const sigset_t *, sigset_t *);
    int (*sigaction)(int, const struct sigaction *, struct sigaction *);
    sighandler_t (*signal)(int, sighandler_t);
    sighandler_t (*sysv_signal)(int, sighandler_t);
    sighandler_t (*sigset)(int, sighandler_t);
    int (*sighold)(int);
    int (*sigignore)(int);
    int (*sigblock)(int);
    int (*sigsetmask)(int);
    int (*sigsuspend)(const sigset_t *);
    int (*ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
    int (*ppoll_checked)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *,
                         size_t); /* __ppoll_chk */
    int (*pselect)(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *);
    int (*epoll_pwait)(int, struct epoll_event *, int, int, const sigset_t *);
    int (*epoll_pwait2)(int, struct epoll_event *, int, const struct timespec *, const sigset_t *);
    void (*longjmp)(jmp_buf, int);
    void (*siglongjmp)(sigjmp_buf, int);
    void (*longjmp_checked)(jmp_buf, int);           /* __longjmp_chk */
    void (*throw)(void *, void *, void (*)(void *)); /* __cxa_throw; NULL: see next_of_runtime() */

    /* Whatever the type of the lock. */
    int (*pthread_mutex_lock)(void *);
    int (*pthread_mutex_trylock)(void *);
    int (*pthread_mutex_unlock)(void *);
    int (*pthread_spin_lock)(void *);
    int (*pthread_spin_trylock)(void *);
    int (*pthread_spin_unlock)(void *);
    int (*pthread_rwlock_rdlock)(void *);
    int (*pthread_rwlock_wrlock)(void *);
    int (*pthread_rwlock_tryrdlock)(void *);
    int (*pthread_rwlock_trywrlock)(void *);
    int (*pthread_rwlock_unlock)(void *);

    struct next_operators plain;
    struct next_operators array;
};

extern struct next next __attribute__((visibility("hidden")));

/* Are they found? Finds them where this is the first call; false: this is a call from within that search. */
bool next_found(void);

/* One of them alone, which every libc has: to look for all may allocate, and who calls it may hold a lock of an allocator that
 * nobody here stands before, as a program's own. */
void next_find(void *where, const char *name);
#define NEXT_ALONE(name)                                                                           \
    (LIKELY(next.name != NULL) ? next.name : (next_find(&next.name, #name), next.name))

/* Looks again for a function of the C++ runtime, which came with a plugin. NULL: nobody has it. */
void *next_of_runtime(const char *name);

/* That of the object that an address lies in, as of a plugin that has a C++ runtime built in: for its own calls alone, since others
 * have others. Aborts where there is none: without us, the program would call NULL. */
void *next_of_object(const void *address, const char *name);

/* An operator, by the first of these two that has it: `number` counts the members of struct next_operators. */
void *next_operator(bool array, size_t number, const void *caller);

/* Memory for whoever allocates during the search: aligned to 16, zero, never given back. NULL: there is no more. */
void *next_early_block(size_t bytes);
enum { NEXT_EARLY_BYTES = 64 << 10 };
extern char next_early[NEXT_EARLY_BYTES] __attribute__((visibility("hidden")));
extern _Atomic size_t next_early_used __attribute__((visibility("hidden")));

static inline bool next_is_early(const void *block)
{
    return UNLIKELY(atomic_load_explicit(&next_early_used, memory_order_relaxed) != 0) &&
           (uintptr_t)block - (uintptr_t)next_early < NEXT_EARLY_BYTES;
}

size_t
next_early_rest(const void *block); /* bytes from there on that may be read; 0: not such a block */

#endif
