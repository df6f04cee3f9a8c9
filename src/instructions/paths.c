#include "instructions/paths.h"

enum size_group path_group(size_t bytes)
{
    enum { SMALL_MOST = 1 << 10, MEDIUM_MOST = 32 << 10 };
    return bytes <= SMALL_MOST ? SIZE_SMALL : bytes <= MEDIUM_MOST ? SIZE_MEDIUM : SIZE_LARGE;
}

/* Empty assembly that names the function keeps compilers from merging the functions, and from
 * ending them with a jump to the allocator. */
#define PATH(name)                                                                                 \
    __attribute__((visibility("default"), noinline)) uintptr_t cairn_path_##name(                  \
        path_function *function, uintptr_t first, uintptr_t second, uintptr_t third);              \
    uintptr_t cairn_path_##name(path_function *function, uintptr_t first, uintptr_t second,        \
                                uintptr_t third)                                                   \
    {                                                                                              \
        uintptr_t result = function(first, second, third);                                         \
        __asm__ volatile("/* " #name " */" : "+r"(result));                                        \
        return result;                                                                             \
    }
#define SIZES(path) PATH(path##_small) PATH(path##_medium) PATH(path##_large)

SIZES(untold)
SIZES(reused)
SIZES(new)
SIZES(free)
SIZES(realloc)

uintptr_t path_call(enum path path, enum size_group group, path_function *function, uintptr_t first,
                    uintptr_t second, uintptr_t third)
{
#define NAMES(path)                                                                                \
    {                                                                                              \
        cairn_path_##path##_small, cairn_path_##path##_medium, cairn_path_##path##_large           \
    }
    static uintptr_t (*const functions[PATHS][SIZE_GROUPS])(path_function *, uintptr_t, uintptr_t,
                                                            uintptr_t) = {
        [PATH_UNTOLD] = NAMES(untold), [PATH_REUSED] = NAMES(reused),   [PATH_NEW] = NAMES(new),
        [PATH_FREE] = NAMES(free),     [PATH_REALLOC] = NAMES(realloc),
    };
    return functions[path][group](function, first, second, third);
}
