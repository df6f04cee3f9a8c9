/* deepbind.c - dlopen() and dlmopen() without RTLD_DEEPBIND.
 *
 * With RTLD_DEEPBIND, a plugin looks for free() in its own libraries first, and finds libc's. But
 * the blocks that the program passes to the plugin are ours. Debian's php, for example, crashes at
 * its start under every other preloaded allocator. With CAIRN_KEEP_DEEPBIND=1 the flag is kept, for
 * a plugin that needs it for names of its own. The flag is also kept in two cases in which it does
 * no harm: if the call loads nothing, and if it loads a library into a namespace other than the
 * program's. The libraries of such a namespace have a malloc of their own anyway.
 *
 * The loader looks at the return address to see which object called, and searches that object's
 * RUNPATH. So each function here calls the loader's function last, by a jump, which keeps the
 * return address. The build asks the compiler for the jump (CMakeLists.txt), and a test checks that
 * it is there.
 */
#include "abi/abi.h"
#include "alloc/options.h"

#include <dlfcn.h>

static int masked(const char *path, int flags) __attribute__((noinline));
static void *next(const char *name) __attribute__((noinline));

static int masked(const char *path, int flags)
{
    bool loads = path != NULL && (flags & RTLD_NOLOAD) == 0;
    if ((flags & RTLD_DEEPBIND) == 0 || !loads || options_keep_deepbind())
        return flags;
    return flags & ~RTLD_DEEPBIND;
}

/* Returns the next definition of `name`. The definition is looked up at each call. A lookup takes
 * far less time than loading a library. Another library that defines the name may have been loaded
 * since the last call. */
static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

EXPORT void *dlopen(const char *path, int flags)
{
    void *(*real)(const char *, int) = (void *(*)(const char *, int))next("dlopen");
    return real != NULL ? real(path, masked(path, flags)) : NULL;
}

EXPORT void *dlmopen(Lmid_t space, const char *path, int flags)
{
    void *(*real)(Lmid_t, const char *, int) =
        (void *(*)(Lmid_t, const char *, int))next("dlmopen");
    return real != NULL ? real(space, path, space == LM_ID_BASE ? masked(path, flags) : flags)
                        : NULL;
}
