/* paths.h - calls a function of the allocator through a function whose name says the path.
 *
 * Callgrind counts the instructions of a call by the names of caller and callee. The library
 * therefore calls every function of the allocator from one of the functions cairn_path_PATH_SIZE().
 * The instructions that callgrind counts for the calls of such a function are those of the
 * allocator alone, without those of the library. Any thread may call path_call().
 */
#ifndef CAIRN_INSTRUCTIONS_PATHS_H
#define CAIRN_INSTRUCTIONS_PATHS_H

#include "base/base.h"

enum path { PATH_UNTOLD, PATH_REUSED, PATH_NEW, PATH_FREE, PATH_REALLOC, PATHS };
enum size_group { SIZE_SMALL, SIZE_MEDIUM, SIZE_LARGE, SIZE_GROUPS };

/* Any function of an allocator. Each has at most three arguments, and each of them, like the
 * result, fits into a register. The calling conventions pass unused arguments without harm. */
typedef uintptr_t path_function(uintptr_t first, uintptr_t second, uintptr_t third);

/* Returns the size group of a request: up to 1 KiB, up to 32 KiB, and above. */
enum size_group path_group(size_t bytes);

uintptr_t path_call(enum path path, enum size_group group, path_function *function, uintptr_t first,
                    uintptr_t second, uintptr_t third);

#endif
