/* The shared library stays loaded for ever, and its thread is none that the program wraps. */
#include "abi/abi.h"
#include "alloc/background.h"

#include <dlfcn.h>

static background_create *next_create(void)
{
    return (background_create *)dlsym(RTLD_NEXT, "pthread_create");
}

__attribute__((constructor)) static void set_next_create(void)
{
    background_next_create = next_create;
}
