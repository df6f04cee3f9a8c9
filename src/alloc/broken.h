/* broken.h - ends the program when its heap is corrupt: one line on stderr, and abort().
 *
 * Any thread may call the functions here. They are async-signal-safe and allocate nothing. Hot
 * paths call them only in branches that they need for another reason. CHECK_THAT serves the
 * functions that assert a contract (page_heap_check …). Those functions run in tests, and in
 * programs that call cairn_check().
 */
#ifndef CAIRN_ALLOC_BROKEN_H
#define CAIRN_ALLOC_BROKEN_H

#include "base/base.h"

/* Writes "cairn: WHAT: POINTER", or "cairn: WHAT" if `pointer` is NULL, and aborts. `what` is a
 * clause such as "a block is freed twice". */
_Noreturn void broken(const char *what, const void *pointer) __attribute__((cold));

/* Like broken(), for a misuse by the program. The line also contains `where`, which says what the
 * pointer points to, for example "size class", and its size `bytes`. If `where` is NULL, the line
 * contains neither. At the end of the line, the hardened build names the program's call
 * (code_address.h), and the plain build says how to find this call. */
_Noreturn void broken_by_misuse(const char *what, const void *pointer, const char *where,
                                size_t bytes) __attribute__((cold));

#define CHECK_THAT(condition)                                                                      \
    do {                                                                                           \
        if (UNLIKELY(!(condition)))                                                                \
            broken("not true: " #condition " in " __FILE__, NULL);                                 \
    } while (0)

#endif
