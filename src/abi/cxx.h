/* cxx.h - what C++'s operators need of the C++ runtime, which need not be there.
 *
 * The operators never fail quietly: before they give up they call the program's new_handler again and again, and then
 * throw. Both are the runtime's. The shared library finds it in the process, at load or when it is first needed
 * (cxx_shared.c), so that C programs do without; in the archive the operators are an object of their own, which only a
 * C++ program links, and with it its runtime (cxx_archive.c).
 */
#ifndef CAIRN_ABI_CXX_H
#define CAIRN_ABI_CXX_H

#include "base/base.h"

typedef void (*cxx_handler)(void); /* std::new_handler */

/* The program's, or NULL. */
cxx_handler cxx_new_handler(void);

/* Throws std::bad_alloc. */
_Noreturn void cxx_throw(void);

#endif
