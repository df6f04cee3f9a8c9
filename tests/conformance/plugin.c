/* plugin.c - a library that a program opens. It allocates, and frees blocks of the program. One
 * block stays allocated for each thread that calls the library. */
#include <stdlib.h>
#include <string.h>

#ifdef WITH_CAIRN_ITSELF /* the plugin contains an allocator of its own */
#include <cairn/cairn.h>
#define malloc cairn_malloc
#define free   cairn_free
#endif

static _Thread_local void *of_thread;

__attribute__((visibility("default"))) void *plugin_allocate(size_t size)
{
    free(of_thread);
    of_thread = malloc(size / 2);
    void *p = malloc(size);
    if (p != NULL)
        memset(p, 1, size);
    return p;
}

__attribute__((visibility("default"))) void plugin_free(void *p)
{
    free(p);
}

__attribute__((visibility("default"))) void plugin_leave(void)
{
    free(of_thread);
    of_thread = NULL;
}
