/* cxx_forms.h - C++'s operators, built on five functions that the including file defines:
 *
 *     void *cxx_quick(size_t size)
 *     void *cxx_quick_aligned(size_t alignment, size_t size)
 *     void *cxx_allocate(size_t size, const void *caller)
 *     void *cxx_allocate_aligned(size_t alignment, size_t size, const void *caller)
 *     void cxx_release(void *p)
 *
 * The two quick functions are fast paths. If one returns NULL, the matching cxx_allocate function
 * must be called. The cxx_allocate functions return NULL only if there is no memory. `alignment` is
 * a power of two.
 *
 * The names are mangled as in the Itanium C++ ABI, with unsigned long as size_t. The standard says
 * which form of an operator calls which other form ([new.delete]). A program that replaces only
 * `operator new(size_t)` and `operator delete(void *)` thereby also replaces all other forms except
 * the aligned ones. So the forms call each other by their public names, which the program may
 * define. Such a call is the last act of a function, so that the return address stays that of the
 * caller. All definitions here are weak, so that definitions of the program win against those of an
 * archive.
 */
#include "abi/abi.h"
#include "abi/cxx_runtime.h"

_Static_assert(sizeof(size_t) == sizeof(unsigned long), "m in the names below is unsigned long");

#define OPERATOR EXPORT __attribute__((weak))

/* Allocates a block. While there is no memory, calls the program's new_handler; throws if there is
 * none. An operator enters this function by a jump, so that the return address is that of the
 * operator's caller. */
static void *new_slow(size_t alignment, size_t size) __attribute__((cold, noinline));

static void *new_slow(size_t alignment, size_t size)
{
    const void *caller = __builtin_return_address(0);
    if (!power_of_two(alignment))
        cxx_runtime_throw();
    for (;;) {
        void *p = alignment <= 16 ? cxx_allocate(size, caller)
                                  : cxx_allocate_aligned(alignment, size, caller);
        if (p != NULL)
            return p;
        cxx_runtime_handler handler = cxx_runtime_new_handler();
        if (handler == NULL)
            cxx_runtime_throw();
        handler(); /* frees something, throws, or ends the program */
    }
}

/* operator new(size_t), new[](size_t) */
OPERATOR void *_Znwm(size_t size)
{
    void *p = cxx_quick(size);
    return LIKELY(p != NULL) ? p : new_slow(16, size);
}

OPERATOR void *_Znam(size_t size)
{
    return _Znwm(size);
}

/* operator new(size_t, align_val_t), and the same for new[] */
OPERATOR void *_ZnwmSt11align_val_t(size_t size, size_t alignment)
{
    void *p = power_of_two(alignment) ? cxx_quick_aligned(alignment, size) : NULL;
    return LIKELY(p != NULL) ? p : new_slow(alignment, size);
}

OPERATOR void *_ZnamSt11align_val_t(size_t size, size_t alignment)
{
    return _ZnwmSt11align_val_t(size, alignment);
}

/* operator delete(void *), delete[](void *) */
OPERATOR void _ZdlPv(void *p)
{
    cxx_release(p);
}

OPERATOR void _ZdaPv(void *p)
{
    _ZdlPv(p);
}

/* operator delete(void *, size_t), and the same for delete[] */
OPERATOR void _ZdlPvm(void *p, size_t size)
{
    (void)size;
    _ZdlPv(p);
}

OPERATOR void _ZdaPvm(void *p, size_t size)
{
    (void)size;
    _ZdaPv(p);
}

/* operator delete(void *, nothrow_t const &), and the same for delete[] */
OPERATOR void _ZdlPvRKSt9nothrow_t(void *p, const void *nothrow)
{
    (void)nothrow;
    _ZdlPv(p);
}

OPERATOR void _ZdaPvRKSt9nothrow_t(void *p, const void *nothrow)
{
    (void)nothrow;
    _ZdaPv(p);
}

/* operator delete(void *, align_val_t), and the same for delete[] */
OPERATOR void _ZdlPvSt11align_val_t(void *p, size_t alignment)
{
    (void)alignment;
    cxx_release(p);
}

OPERATOR void _ZdaPvSt11align_val_t(void *p, size_t alignment)
{
    _ZdlPvSt11align_val_t(p, alignment);
}

/* operator delete(void *, size_t, align_val_t), and the same for delete[] */
OPERATOR void _ZdlPvmSt11align_val_t(void *p, size_t size, size_t alignment)
{
    (void)size;
    _ZdlPvSt11align_val_t(p, alignment);
}

OPERATOR void _ZdaPvmSt11align_val_t(void *p, size_t size, size_t alignment)
{
    (void)size;
    _ZdaPvSt11align_val_t(p, alignment);
}

/* operator delete(void *, align_val_t, nothrow_t const &), and the same for delete[] */
OPERATOR void _ZdlPvSt11align_val_tRKSt9nothrow_t(void *p, size_t alignment, const void *nothrow)
{
    (void)nothrow;
    _ZdlPvSt11align_val_t(p, alignment);
}

OPERATOR void _ZdaPvSt11align_val_tRKSt9nothrow_t(void *p, size_t alignment, const void *nothrow)
{
    (void)nothrow;
    _ZdaPvSt11align_val_t(p, alignment);
}
