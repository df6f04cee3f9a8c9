/* opener.c - a library that opens another one by its bare name. The loader can find the other
 * library only by the RUNPATH of this one. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

__attribute__((visibility("default"))) int open_by_name(const char *name)
{
    void *handle = dlopen(name, RTLD_NOW | RTLD_DEEPBIND);
    if (handle == NULL)
        fprintf(stderr, "%s\n", dlerror());
    return handle != NULL;
}
