/* background_shared.c - lets the shared library start its background thread. The library may do so
 * because it is never unloaded. It calls the pthread_create() of the libraries that come after it
 * in the loader's order. So a pthread_create() that the program itself defines does not see this
 * thread. */
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
