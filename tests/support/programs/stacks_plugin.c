/* stacks_plugin.c - a library that allocates, for stacks_storm.c. */
#include <stdlib.h>

void plugin_allocates(size_t bytes)
{
    void *volatile block = malloc(bytes);
    free(block);
}
