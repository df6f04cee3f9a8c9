/* opens.c - opens the library that its argument names. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    if (count == 2 && dlopen(arguments[1], RTLD_NOW) != NULL)
        return 0;
    fprintf(stderr, "%s\n", count == 2 ? dlerror() : "usage: opens LIBRARY");
    return 1;
}
