/* guard.h - idle memory is watched: nobody writes to what nobody was given.
 *
 * Three ways, of which an arena has one for all its life:
 *
 *     GUARD_NONE     nothing is watched
 *     GUARD_PATTERN  idle memory holds a pattern, which is looked for later
 *     GUARD_ASAN     the program was built with AddressSanitizer, and is told what is idle; it complains at once
 *
 * The functions of the sanitizer are looked up by the linker, weakly: the same library works in programs with and
 * without. What watches reads and writes idle memory itself, and is therefore not instrumented where the library is.
 */
#ifndef CAIRN_ARENA_GUARD_H
#define CAIRN_ARENA_GUARD_H

#include "base/base.h"

enum guard {
    GUARD_NONE,
    GUARD_PATTERN,
    GUARD_ASAN,
};

/* A function that looks into idle memory. */
#define GUARD_MAY_LOOK __attribute__((no_sanitize("address")))

/* Pattern if it is asked for or, with `ask_environment`, CAIRN_ARENA_CHECKED says so. */
enum guard guard_choose(bool pattern, bool ask_environment);

/* From now on idle. */
void guard_cover(enum guard guard, void *start, size_t bytes);

/* From now on somebody's. */
void guard_uncover(enum guard guard, void *start, size_t bytes);

/* The leak checker knows only malloc's memory: it shall, and then no longer, look for pointers here as well. */
void guard_adopt(enum guard guard, void *start, size_t bytes);
void guard_abandon(enum guard guard, void *start, size_t bytes);

/* The first byte that does not hold the pattern; NULL: all do, or there is none to look for. */
const void *guard_disturbed(enum guard guard, const void *start, size_t bytes);

/* "cairn: <noun> <address>: <what> at <address>", and abort(). */
_Noreturn void guard_complain(const char *noun, const void *owner, const char *what,
                              const void *where);

#endif
