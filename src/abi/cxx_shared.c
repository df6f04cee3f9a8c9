/* cxx_shared.c - the operators in libcairn.so, for programs with or without a C++ runtime.
 *
 * A runtime that the program is linked with is found at load, by weak references. A plugin may load
 * a runtime later and hide it from other libraries. Such a runtime is searched for by its file name
 * when an operator fails.
 */
#include "abi/front.h"

static inline __attribute__((always_inline)) void *cxx_quick(size_t size)
{
    return front_malloc_quick(size);
}

static inline __attribute__((always_inline)) void *cxx_quick_aligned(size_t alignment, size_t size)
{
    return front_aligned_quick(alignment, size);
}

static inline void *cxx_allocate(size_t size, const void *caller)
{
    return front_malloc_slow(size, caller);
}

static inline void *cxx_allocate_aligned(size_t alignment, size_t size, const void *caller)
{
    return front_aligned_slow(alignment, size, caller);
}

static inline __attribute__((always_inline)) void cxx_release(void *p)
{
    front_free(p, __builtin_return_address(0));
}

#include "abi/cxx_forms.h"
#include "os/os.h"

#include <dlfcn.h>

/* --- the runtime ------------------------------------------------------------------------------ */

/* std::get_new_handler() */
extern cxx_runtime_handler _ZSt15get_new_handlerv(void) __attribute__((weak));
/* std::__throw_bad_alloc(), in libstdc++ and libc++ */
extern void _ZSt17__throw_bad_allocv(void) __attribute__((weak));

typedef void (*function)(void);

/* Returns a function of a C++ runtime that is in the process, or NULL. Loads no library. */
static function find(const char *name)
{
    static const char *const runtimes[] = {"libstdc++.so.6", "libc++.so.1", "libc++abi.so.1"};
    union {
        void *object;
        function function;
    } found = {.object = dlsym(RTLD_NEXT, name)};
    for (size_t i = 0; i < COUNT_OF(runtimes) && found.object == NULL; i++) {
        void *runtime = dlopen(runtimes[i], RTLD_LAZY | RTLD_NOLOAD);
        if (runtime == NULL)
            continue;
        found.object = dlsym(runtime, name);
        dlclose(runtime); /* stays loaded for the code that loaded it */
    }
    return found.function;
}

cxx_runtime_handler cxx_runtime_new_handler(void)
{
    if (_ZSt15get_new_handlerv != NULL)
        return _ZSt15get_new_handlerv();
    cxx_runtime_handler (*get)(void) =
        (cxx_runtime_handler (*)(void))find("_ZSt15get_new_handlerv");
    return get != NULL ? get() : NULL;
}

_Noreturn void cxx_runtime_throw(void)
{
    function throw = _ZSt17__throw_bad_allocv != NULL ? _ZSt17__throw_bad_allocv
                                                      : find("_ZSt17__throw_bad_allocv");
    if (throw != NULL)
        throw();
    static const char line[] =
        "cairn: operator new found no memory, and no C++ runtime to throw std::bad_alloc\n";
    os_die(line, sizeof line - 1);
}

/* --- nothrow ---------------------------------------------------------------------------------- */

/* In C++, the nothrow forms call the throwing form of the operator and return NULL if that form
 * throws. C cannot catch an exception. So if an exception is possible, the runtime's own function
 * of the same name does all the work. No exception is possible if the operators are ours, and there
 * is memory or no new_handler. */

extern __typeof__(_Znwm) own_new __attribute__((alias("_Znwm"), visibility("hidden")));
extern __typeof__(_Znam) own_new_array __attribute__((alias("_Znam"), visibility("hidden")));
extern __typeof__(_ZnwmSt11align_val_t) own_new_aligned
    __attribute__((alias("_ZnwmSt11align_val_t"), visibility("hidden")));
extern __typeof__(_ZnamSt11align_val_t) own_new_array_aligned
    __attribute__((alias("_ZnamSt11align_val_t"), visibility("hidden")));

typedef void *form(size_t size, const void *nothrow);
typedef void *form_aligned(size_t size, size_t alignment, const void *nothrow);

static void *nothrow_slow(bool ours, const char *name, size_t size, const void *nothrow)
    __attribute__((cold, noinline));

static void *nothrow_slow(bool ours, const char *name, size_t size, const void *nothrow)
{
    void *p = ours ? cxx_allocate(size, __builtin_return_address(0)) : NULL;
    if (p != NULL || (ours && cxx_runtime_new_handler() == NULL))
        return p;
    form *of_runtime = (form *)find(name);
    return of_runtime != NULL ? of_runtime(size, nothrow) : NULL;
}

static void *nothrow_aligned(bool ours, const char *name, size_t size, size_t alignment,
                             const void *nothrow)
{
    const void *caller = __builtin_return_address(0);
    void *p =
        ours && power_of_two(alignment) ? cxx_allocate_aligned(alignment, size, caller) : NULL;
    if (p != NULL || (ours && cxx_runtime_new_handler() == NULL))
        return p;
    form_aligned *of_runtime = (form_aligned *)find(name);
    return of_runtime != NULL ? of_runtime(size, alignment, nothrow) : NULL;
}

OPERATOR void *_ZnwmRKSt9nothrow_t(size_t size, const void *nothrow)
{
    bool ours = _Znwm == own_new;
    void *p = LIKELY(ours) ? cxx_quick(size) : NULL;
    return LIKELY(p != NULL) ? p : nothrow_slow(ours, "_ZnwmRKSt9nothrow_t", size, nothrow);
}

OPERATOR void *_ZnamRKSt9nothrow_t(size_t size, const void *nothrow)
{
    bool ours = _Znwm == own_new && _Znam == own_new_array;
    void *p = LIKELY(ours) ? cxx_quick(size) : NULL;
    return LIKELY(p != NULL) ? p : nothrow_slow(ours, "_ZnamRKSt9nothrow_t", size, nothrow);
}

OPERATOR void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment,
                                                  const void *nothrow)
{
    return nothrow_aligned(_ZnwmSt11align_val_t == own_new_aligned,
                           "_ZnwmSt11align_val_tRKSt9nothrow_t", size, alignment, nothrow);
}

OPERATOR void *_ZnamSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment,
                                                  const void *nothrow)
{
    bool ours =
        _ZnwmSt11align_val_t == own_new_aligned && _ZnamSt11align_val_t == own_new_array_aligned;
    return nothrow_aligned(ours, "_ZnamSt11align_val_tRKSt9nothrow_t", size, alignment, nothrow);
}
