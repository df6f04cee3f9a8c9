/* guard.h - watches idle memory, which no user may write to.
 *
 * Each arena and each pool watches its idle memory in one of three ways, from its creation to its
 * end:
 *
 *     GUARD_NONE     idle memory is not watched
 *     GUARD_PATTERN  idle memory holds a pattern, which is verified later
 *     GUARD_ASAN     the program has AddressSanitizer; the library tells it which memory is idle,
 *                    and it reports a write at once
 *
 * The linker looks the sanitizer's functions up by weak references, so that the same library works
 * in programs with and without the sanitizer. The library's functions that watch idle memory also
 * read and write it. They are marked GUARD_MAY_LOOK, so that the sanitizer does not report them
 * even if the library is built with the sanitizer.
 */
#ifndef CAIRN_ARENA_GUARD_H
#define CAIRN_ARENA_GUARD_H

#include "base/base.h"

enum guard {
    GUARD_NONE,
    GUARD_PATTERN,
    GUARD_ASAN,
};

/* Marks a function that reads or writes idle memory. */
#define GUARD_MAY_LOOK __attribute__((no_sanitize("address")))

/* Returns GUARD_ASAN if the program has AddressSanitizer, otherwise GUARD_PATTERN if `pattern` is
 * true, otherwise GUARD_NONE. If `ask_environment` is true, the environment variable
 * CAIRN_ARENA_CHECKED decides instead of `pattern`. */
enum guard guard_choose(bool pattern, bool ask_environment);

/* Marks memory as idle from now on. */
void guard_cover(enum guard guard, void *start, size_t bytes);

/* Marks memory as in use from now on. */
void guard_uncover(enum guard guard, void *start, size_t bytes);

/* The leak checker searches only malloc's memory for pointers. guard_adopt() makes it search this
 * memory, too. guard_abandon() makes it stop. */
void guard_adopt(enum guard guard, void *start, size_t bytes);
void guard_abandon(enum guard guard, void *start, size_t bytes);

/* Returns the first byte that does not hold the pattern. Returns NULL if all bytes do, or if
 * `guard` is not GUARD_PATTERN. */
const void *guard_disturbed(enum guard guard, const void *start, size_t bytes);

/* Writes "cairn: NOUN OWNER: WHAT at WHERE" to stderr, with OWNER and WHERE as addresses, and
 * aborts. */
_Noreturn void guard_complain(const char *noun, const void *owner, const char *what,
                              const void *where);

#endif
