/* shown_flags.c - a library whose dlopen() and dlmopen() load nothing. They print whether the flags
 * contain RTLD_DEEPBIND. */
#include <dlfcn.h>
#include <stdio.h>

static void *show(int flags)
{
    puts((flags & RTLD_DEEPBIND) != 0 ? "kept" : "dropped");
    return NULL;
}

void *dlopen(const char *path, int flags)
{
    (void)path;
    return show(flags);
}

void *dlmopen(Lmid_t space, const char *path, int flags)
{
    (void)space, (void)path;
    return show(flags);
}
