/* cxx_archive.c - the operators in libcairn.a: an object of its own, which needs the C++ runtime
 * and cairn.h alone.
 *
 * The forms with std::nothrow come from the C++ runtime. They call the forms here and catch the
 * exception, which C cannot do.
 *
 * The functions of cairn.h have no parameter for the address of the caller. While sites are counted
 * (alloc/site.h), all large blocks of an operator therefore count for one site: the operator.
 */
#include <cairn/cairn.h>

#include <stddef.h>

static inline __attribute__((always_inline)) void *cxx_quick(size_t size)
{
    return cairn_malloc(size);
}

static inline __attribute__((always_inline)) void *cxx_quick_aligned(size_t alignment, size_t size)
{
    return cairn_aligned_alloc(alignment, size);
}

static inline void *cxx_allocate(size_t size, const void *caller)
{
    (void)caller;
    return cairn_malloc(size);
}

static inline void *cxx_allocate_aligned(size_t alignment, size_t size, const void *caller)
{
    (void)caller;
    return cairn_aligned_alloc(alignment, size);
}

static inline void cxx_release(void *p)
{
    cairn_free(p);
}

#include "abi/cxx_forms.h"

extern cxx_runtime_handler _ZSt15get_new_handlerv(void); /* std::get_new_handler() */
/* std::__throw_bad_alloc(), in libstdc++ and libc++ */
extern _Noreturn void _ZSt17__throw_bad_allocv(void);

cxx_runtime_handler cxx_runtime_new_handler(void)
{
    return _ZSt15get_new_handlerv();
}

_Noreturn void cxx_runtime_throw(void)
{
    _ZSt17__throw_bad_allocv();
}
