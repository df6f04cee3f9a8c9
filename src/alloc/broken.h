/* broken.h - the heap cannot be trusted any more: one line on stderr, and abort().
 *
 * Async-signal-safe; allocates nothing. CHECK_THAT is for the walks that assert a contract (page_heap_check …), which
 * run in tests and when a user asks; hot paths call broken() alone, and only where a branch is there anyway.
 */
#ifndef CAIRN_ALLOC_BROKEN_H
#define CAIRN_ALLOC_BROKEN_H

#include "base/base.h"

/* "cairn: WHAT: POINTER". `what` is a clause such as "double free". */
_Noreturn void broken(const char *what, const void *pointer) __attribute__((cold));

#define CHECK_THAT(condition)                                                                      \
    do {                                                                                           \
        if (UNLIKELY(!(condition)))                                                                \
            broken("not true: " #condition " in " __FILE__, NULL);                                 \
    } while (0)

#endif
