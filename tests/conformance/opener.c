/* A library that opens another by its bare name: the loader finds it by this one's RUNPATH, or not at all. */
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
