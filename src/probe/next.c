#include "probe/next.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

struct next next;

_Alignas(64) char next_early[NEXT_EARLY_BYTES];
_Atomic size_t next_early_used;

enum search { NOT_BEGUN, SEARCHING, FOUND };
static _Atomic int state;

void next_find(void *where, const char *name)
{
    *(void **)where = dlsym(RTLD_NEXT, name);
}

/* The names of the operators, in the order of struct next_operators. Each pair is the operator for
 * single objects and the one for arrays. */
static const char *const operators[][2] = {
    {"_Znwm", "_Znam"},
    {"_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t"},
    {"_ZnwmSt11align_val_t", "_ZnamSt11align_val_t"},
    {"_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t"},
    {"_ZdlPv", "_ZdaPv"},
    {"_ZdlPvm", "_ZdaPvm"},
    {"_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t"},
    {"_ZdlPvSt11align_val_t", "_ZdaPvSt11align_val_t"},
    {"_ZdlPvmSt11align_val_t", "_ZdaPvmSt11align_val_t"},
    {"_ZdlPvSt11align_val_tRKSt9nothrow_t", "_ZdaPvSt11align_val_tRKSt9nothrow_t"},
};
static_assert(sizeof operators == 2 * sizeof(struct next_operators), "one name for each");

/* Keeps the library of a function loaded until the process ends, because the address of the
 * function is remembered. Otherwise the library would be unloaded with the last plugin that needs
 * it. */
static void keep_loaded(const void *function)
{
    Dl_info about;
    if (dladdr(function, &about) == 0 || about.dli_fname == NULL)
        return;
    void *object = dlopen(about.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    /* `object` is NULL if dladdr() gave the program's own path and that path is relative to another
     * folder. */
    if (object != NULL)
        dlclose(object);
}

/* If a plugin has loaded the C++ runtime, dlsym(RTLD_NEXT) does not search the runtime for us.
 * dlopen() finds the runtime by its file name. */
void *next_of_runtime(const char *name)
{
    static const char *const runtimes[] = {"libstdc++.so.6", "libc++.so.1", "libc++abi.so.1"};
    void *found = dlsym(RTLD_NEXT, name);
    for (size_t i = 0; i < COUNT_OF(runtimes) && found == NULL; i++) {
        void *runtime = dlopen(runtimes[i], RTLD_LAZY | RTLD_NOLOAD);
        if (runtime == NULL)
            continue;
        found = dlsym(runtime, name);
        dlclose(runtime); /* the plugin keeps the runtime loaded */
    }
    if (found != NULL)
        keep_loaded(found);
    return found;
}

/* `address` is the return address of the call. It lies in this library if we have called an
 * operator of a plugin, and that operator ended with a jump to another operator. The caller is then
 * the plugin of the last call. */
void *next_of_object(const void *address, const char *name)
{
    static __thread void *last;
    Dl_info ours, about;
    if (dladdr(&next, &ours) != 0 && dladdr(address, &about) != 0 &&
        about.dli_fbase == ours.dli_fbase)
        address = last;
    void *object = dladdr(address, &about) != 0 && about.dli_fname != NULL
                       ? dlopen(about.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
                       : NULL;
    last = object != NULL ? dlsym(object, name) : NULL;
    if (last == NULL)
        abort();
    dlclose(object);
    return last;
}

void *next_operator(bool array, size_t number, const void *caller)
{
    void **place = &((void **)(array ? &next.array : &next.plain))[number];
    *place = next_of_runtime(operators[number][array]);
    return *place != NULL ? *place : next_of_object(caller, operators[number][array]);
}

static void find_all(void)
{
#define FIND(name) next_find(&next.name, #name)
    FIND(calloc);
    FIND(free);
    FIND(realloc);
    FIND(reallocarray);
    FIND(aligned_alloc);
    FIND(posix_memalign);
    FIND(memalign);
    FIND(valloc);
    FIND(pvalloc);
    FIND(malloc_usable_size);
    FIND(malloc_trim);
    FIND(free_sized);
    FIND(free_aligned_sized);
    FIND(mmap);
    FIND(munmap);
    FIND(madvise);
    FIND(mprotect);
    FIND(sbrk);
    FIND(prctl);
    FIND(syscall);
    FIND(pthread_create);
    FIND(sigaltstack);
    FIND(pthread_sigmask);
    FIND(sigaction);
    FIND(signal);
    FIND(sysv_signal);
    FIND(sigset);
    FIND(sighold);
    FIND(sigignore);
    FIND(sigblock);
    FIND(sigsetmask);
    FIND(sigsuspend);
    FIND(ppoll);
    FIND(pselect);
    FIND(epoll_pwait);
    FIND(epoll_pwait2);
    FIND(longjmp);
    FIND(pthread_mutex_lock);
    FIND(pthread_mutex_trylock);
    FIND(pthread_mutex_unlock);
    FIND(pthread_spin_lock);
    FIND(pthread_spin_trylock);
    FIND(pthread_spin_unlock);
    FIND(pthread_rwlock_rdlock);
    FIND(pthread_rwlock_wrlock);
    FIND(pthread_rwlock_tryrdlock);
    FIND(pthread_rwlock_trywrlock);
    FIND(pthread_rwlock_unlock);
    FIND(siglongjmp);
#undef FIND
    next_find(&next.longjmp_checked, "__longjmp_chk");
    next_find(&next.ppoll_checked, "__ppoll_chk");
    next_find(&next.throw, "__cxa_throw");
    next_find(&next.allocate_exception, "__cxa_allocate_exception");
    for (size_t i = 0; i < COUNT_OF(operators); i++) {
        next_find((void **)&next.plain + i, operators[i][0]);
        next_find((void **)&next.array + i, operators[i][1]);
    }
    next_find(&next.malloc, "malloc");
}

/* The search runs while there is only one thread: our pthread_create() finishes the search before
 * it creates a thread. */
bool next_found(void)
{
    int begun = NOT_BEGUN;
    if (LIKELY(atomic_load_explicit(&state, memory_order_acquire) == FOUND))
        return true;
    if (!atomic_compare_exchange_strong(&state, &begun, SEARCHING))
        return begun == FOUND;
    find_all();
    atomic_store_explicit(&state, FOUND, memory_order_release);
    return true;
}

void *next_early_block(size_t bytes)
{
    size_t rounded = (bytes + 15) & ~(size_t)15;
    if (bytes > NEXT_EARLY_BYTES)
        return NULL;
    size_t start = atomic_fetch_add(&next_early_used, rounded);
    return start + rounded <= NEXT_EARLY_BYTES ? next_early + start : NULL;
}

size_t next_early_rest(const void *block)
{
    return next_is_early(block) ? NEXT_EARLY_BYTES - ((uintptr_t)block - (uintptr_t)next_early) : 0;
}
