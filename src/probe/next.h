/* next.h - the functions that the program would call if the probe were not there.
 *
 * dlsym(RTLD_NEXT) finds each function by its name, in the libraries that come after this one. A
 * pointer is NULL if no library has the function. The search for all functions runs once: at the
 * first operation, or in the probe's constructor if no operation came earlier. dlsym() of old libcs
 * allocates during the search, when the allocator is not known yet. next_early_block() serves these
 * allocations. Any thread may call any function here.
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

    int (*prctl)(int, ...);
    long (*syscall)(long, ...);

    int (*pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    int (*sigaltstack)(const stack_t *, stack_t *);
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
    void (*longjmp_checked)(jmp_buf, int); /* __longjmp_chk */
    /* These two may be NULL; see next_of_runtime(). */
    void (*throw)(void *, void *, void (*)(void *)); /* __cxa_throw */
    void *(*allocate_exception)(size_t);             /* __cxa_allocate_exception */

    /* The argument is the lock, of whatever type. */
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

/* The first call finds all functions. Returns true if the functions are known. Returns false if the
 * search is still running: the call then comes from within the search. */
bool next_found(void);

/* Finds a single function. Lock and signal functions use this instead of next_found(), which
 * searches for all functions and may allocate. The caller of a lock function may be an allocator
 * that the probe does not interpose, such as the program's own. This allocator may hold a lock that
 * an allocation during the search would need. */
void next_find(void *where, const char *name);
#define NEXT_ALONE(name)                                                                           \
    (LIKELY(next.name != NULL) ? next.name : (next_find(&next.name, #name), next.name))

/* Looks for a function of the C++ runtime. This search can succeed after the search of next_found()
 * has failed, because a plugin may load the runtime later. Returns NULL if no library has the
 * function. */
void *next_of_runtime(const char *name);

/* Looks for a function in the library that `address` lies in, such as a plugin with a C++ runtime
 * built in. The result is valid for calls of that library only, because another plugin may have a
 * runtime of its own. Aborts if the library has no such function. */
void *next_of_object(const void *address, const char *name);

/* Finds an operator by next_of_runtime(), or else by next_of_object() for `caller`. `number` is the
 * index of its member in struct next_operators. */
void *next_operator(bool array, size_t number, const void *caller);

/* Returns a block for an allocation during the search, aligned to 16 bytes and filled with zeroes.
 * Such blocks are never freed. Returns NULL if NEXT_EARLY_BYTES are used up. */
void *next_early_block(size_t bytes);
enum { NEXT_EARLY_BYTES = 64 << 10 };
extern char next_early[NEXT_EARLY_BYTES] __attribute__((visibility("hidden")));
extern _Atomic size_t next_early_used __attribute__((visibility("hidden")));

static inline bool next_is_early(const void *block)
{
    return UNLIKELY(atomic_load_explicit(&next_early_used, memory_order_relaxed) != 0) &&
           (uintptr_t)block - (uintptr_t)next_early < NEXT_EARLY_BYTES;
}

/* Returns the number of bytes that may be read from `block` on. Returns 0 if `block` is not an
 * early block. */
size_t next_early_rest(const void *block);

#endif
