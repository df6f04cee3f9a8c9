/* cxx_runtime.h - the two functions of the C++ runtime that the operators need. The runtime may be
 * absent.
 *
 * An operator never returns without memory. While there is no memory, it calls the program's
 * new_handler and tries again. If the program has no new_handler, it throws. The handler and the
 * exception belong to the runtime. The shared library finds the runtime in the process, at load or
 * when an operator first fails (cxx_shared.c), so that C programs need no runtime. In the archive,
 * the operators are an object of their own. Only a C++ program links that object, and such a
 * program has the runtime (cxx_archive.c).
 */
#ifndef CAIRN_ABI_CXX_RUNTIME_H
#define CAIRN_ABI_CXX_RUNTIME_H

#include "base/base.h"

typedef void (*cxx_runtime_handler)(void); /* std::new_handler */

/* Returns the program's new_handler, or NULL. */
cxx_runtime_handler cxx_runtime_new_handler(void);

/* Throws std::bad_alloc. */
_Noreturn void cxx_runtime_throw(void);

#endif
