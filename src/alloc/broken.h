/* broken.h - ends the program when its heap is corrupt: one line on stderr, and abort().
 *
 * Any thread may call broken(). It is async-signal-safe and allocates nothing. Hot paths call it
 * only in branches that they need for another reason. CHECK_THAT serves the functions that assert a
 * contract (page_heap_check …). Those functions run in tests, and in programs that call
 * cairn_check().
 */
#ifndef CAIRN_ALLOC_BROKEN_H
#define CAIRN_ALLOC_BROKEN_H

#include "base/base.h"

/* Writes "cairn: WHAT: POINTER", or "cairn: WHAT" if `pointer` is NULL, and aborts. `what` is a
 * clause such as "a block is freed twice". */
_Noreturn void broken(const char *what, const void *pointer) __attribute__((cold));

#define CHECK_THAT(condition)                                                                      \
    do {                                                                                           \
        if (UNLIKELY(!(condition)))                                                                \
            broken("not true: " #condition " in " __FILE__, NULL);                                 \
    } while (0)

#endif
